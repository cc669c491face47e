"""What the adapters share: arguments by name, coroutines, arrays, and what is a data column."""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rewards.errors import UserError
from rewards.foreign.detect import name_of
from rewards.sample import FIELDS, PLURAL_OF

_OUR_NAMES = {*FIELDS, *PLURAL_OF.values(), "tokenizer"}


def columns_of(known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The data's columns among what the registry hands to a function."""
    return {name: value for name, value in known.items() if name not in _OUR_NAMES and name not in options}


def takes_anything(function: Callable[..., Any]) -> bool:
    """Whether the function has `**kwargs`."""
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def required(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments that have no default."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def arguments(
    function: Callable[..., Any], offered: Mapping[str, Any], catch_all: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What of `offered` the function names, and `catch_all` where it has `**kwargs`.

    Raises:
        UserError: it needs an argument that is not offered.
    """
    chosen = dict(catch_all or {}) if takes_anything(function) else {}
    chosen |= {name: offered[name] for name in inspect.signature(function).parameters if name in offered}
    for name in required(function):
        if name not in chosen:
            raise UserError(
                f"reward function {name_of(function)!r} asks for {name!r}, which there is not; there are: "
                f"{', '.join(sorted(offered))}. Add a data column {name!r} or set it with --reward_options"
            )
    return chosen


def settled(result: Any) -> Any:
    """The result of a plain or an `async` function; works inside a running event loop (a notebook) too."""
    if not inspect.isawaitable(result):
        return result

    async def main() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(main())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, main()).result()


def unpacked(values: Any) -> Any:
    """Arrays and tensors as lists or numbers; everything else as it is."""
    return values.tolist() if hasattr(values, "tolist") else values


def numbers(values: Mapping[str, Any], *, without: str = "") -> dict[str, float]:
    """The entries that are numbers; texts, None and lists are dropped."""
    plain = {str(name): unpacked(value) for name, value in values.items() if name != without}
    return {name: float(value) for name, value in plain.items() if isinstance(value, int | float)}
