"""The signatures of reward functions: whose a function is, by its argument names, and calling it with what it asks for.

>>> def compute_score(data_source, solution_str, ground_truth, extra_info=None): ...
>>> peer_of(compute_score)
'verl'
>>> peer_of(lambda response, gold: 1.0) is None
True
"""

import asyncio
import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

from rewards.errors import UserError
from rewards.sample import FIELDS, PLURAL_OF

Peer = Literal["trl", "verl", "verl_batch", "openrlhf", "colossalai"]

# A function that asks for one of these is ours, whatever else it asks for.
_OURS = {"response", "responses", "response_ids", "responses_ids"}

# The first line whose names are all there decides.
_SIGNATURES: tuple[tuple[Peer, set[str]], ...] = (
    ("verl", {"solution_str", "ground_truth"}),
    ("verl_batch", {"solution_strs", "ground_truths"}),
    ("openrlhf", {"queries", "prompts"}),
    ("colossalai", {"input_ids", "response_idx"}),
    ("colossalai", {"input_ids", "attention_mask"}),
    ("colossalai", {"input_ids", "gt_answer"}),
    ("trl", {"completions"}),
    ("trl", {"completion_ids"}),
)


def peer_of(function: Callable[..., Any]) -> Peer | None:
    """The library whose signature `function` has, or None for one of ours."""
    names = inspect.signature(function).parameters.keys()
    if names & _OURS:
        return None
    return next((peer for peer, needed in _SIGNATURES if needed <= names), None)


def name_of(function: Callable[..., Any]) -> str:
    """The function's name; that of the function inside a `partial`, and the class's for an object without a name."""
    while isinstance(function, partial) and not hasattr(function, "__name__"):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


_OUR_NAMES = {*FIELDS, *PLURAL_OF.values(), "tokenizer"}


def columns_of(known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The data's columns among what the registry hands to a function."""
    return {name: value for name, value in known.items() if name not in _OUR_NAMES and name not in options}


def takes_anything(function: Callable[..., Any]) -> bool:
    """True where the function has `**kwargs`."""
    return any(p.kind is inspect.Parameter.VAR_KEYWORD for p in inspect.signature(function).parameters.values())


def required(function: Callable[..., Any]) -> list[str]:
    """The names of the arguments that have no default."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def arguments(
    function: Callable[..., Any], offered: Mapping[str, Any], catch_all: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The entries of `offered` that the function names, and `catch_all` where it has `**kwargs`.

    Raises:
        UserError: it needs an argument that is not offered.
    """
    chosen = dict(catch_all or {}) if takes_anything(function) else {}
    chosen |= {name: offered[name] for name in inspect.signature(function).parameters if name in offered}
    for name in required(function):
        if name not in chosen:
            raise UserError(
                f"reward function {name_of(function)!r} asks for {name!r}, which is not available; available are: "
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
