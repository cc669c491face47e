"""Reward functions by name: built in, decorated, from an entry point, a module or a file.

>>> @reward_fn("doc_example_length")
... def length(response):
...     return -len(response) / 100
>>> resolve("doc_example_length").name
'doc_example_length'
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, overload

from rewards.environment import TakeTurn, is_environment
from rewards.errors import UserError, nearest
from rewards.foreign import adapt, name_of
from rewards.sample import PLURAL_OF

ENTRY_POINTS = "rlvr.rewards"
"""The entry-point group in which installed packages offer reward functions."""

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class RewardFunction:
    """A resolved reward function.

    Attributes:
        name: under which its scores are logged.
        function: what is called.
        spec: what `resolve` finds it by again, in another process too.
        options: keyword arguments that the settings give it.
        batched: it asks for plural names, and is called once for each batch.
    """

    name: str
    function: Callable[..., Any]
    spec: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batched: bool = False

    @property
    def is_bounded(self) -> bool:
        """True if no response can make it hang: it is one of rlvr's own, and runs no code of others, which it would `prepare`."""
        return self.function.__module__.startswith("rewards.functions.") and not hasattr(self.function, "prepare")

    @property
    def kind(self) -> str:
        """What it is, in words for messages."""
        return _kind(self.function)

    def prepare(self) -> None:
        """Let the function import what it needs, before it has a deadline: its attribute `prepare` does so, if it has one, with the options.

        Raises:
            UserError: a package is missing, or something else that the function needs.
        """
        if (prepare := getattr(self.function, "prepare", None)) is not None:
            prepare(**self.options)

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.function).parameters)


def _kind(function: Callable[..., Any]) -> str:
    return "environment" if isinstance(function, TakeTurn) else "reward function"


_registered: dict[str, Callable[..., Any]] = {}


@overload
def reward_fn(name: F) -> F: ...
@overload
def reward_fn(name: str | None = None) -> Callable[[F], F]: ...
def reward_fn(name: Any = None) -> Any:
    """Register a function under `name` (by default its own name): `@reward_fn("mine")` or `@reward_fn`.

    Raises:
        UserError: another function has the name.
    """
    if callable(name):
        return _register(name.__name__, name)
    return lambda function: _register(name or function.__name__, function)


def _register(name: str, function: F) -> F:
    other = _registered.get(name)
    if other is not None and _place(other) != _place(function):
        raise UserError(f"two reward functions are called {name!r}: {_place(other)} and {_place(function)}; rename one")
    _registered[name] = function
    return function


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def names() -> list[str]:
    """Every name that `resolve` knows: registered functions and entry points."""
    return sorted(_registered.keys() | {point.name for point in entry_points(group=ENTRY_POINTS)})


def resolve(
    spec: "str | Callable[..., Any] | RewardFunction", *, options: Mapping[str, Mapping[str, Any]] | None = None
) -> RewardFunction:
    """The reward function that `spec` stands for.

    Args:
        spec: a registered name, an entry point's name, `package.module:function`, `path/to/file.py:function`, or the
            function itself.
        options: keyword arguments by function name.

    Raises:
        UserError: nothing has this name (the message lists what there is and the nearest), a module or file can't be
            imported, or an option that the function does not take.
    """
    if isinstance(spec, RewardFunction):
        return spec
    name, function = (name_of(spec), spec) if callable(spec) else (_short_name(spec), find(spec))
    chosen = dict((options or {}).get(name, {}))
    function = as_function(function, chosen)
    parameters = inspect.signature(function).parameters
    catches_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    unknown = [key for key in chosen if key not in parameters and not catches_all]
    if unknown:
        raise UserError(f"{_kind(function)} {name!r} takes no option {unknown}; its arguments: {', '.join(parameters)}")
    batched = any(plural in parameters for plural in PLURAL_OF.values())
    return RewardFunction(name, function, spec if isinstance(spec, str) else _place(function), chosen, batched)


ENVIRONMENTS = {
    "calculator": "rewards.calculator:Calculator",
    "python": "rewards.python.environment:Python",
    "textarena": "rewards.adapters.textarena:TextArena",
    "openenv": "rewards.adapters.openenv:OpenEnv",
    "verifiers": "rewards.adapters.verifiers:Verifiers",
}
"""Environments that come with rlvr, by name."""


def resolve_environment(
    spec: str | Callable[..., Any] | RewardFunction, *, options: Mapping[str, Mapping[str, Any]] | None = None
) -> RewardFunction:
    """The environment that `spec` stands for, as a function that takes turns (`rewards.environment.TakeTurn`).

    Args:
        spec: a name of `ENVIRONMENTS`, `package.module:Class`, `path/to/file.py:Class`, or the class itself.
        options: keyword arguments by the class's name.

    Raises:
        UserError: a module or file can't be imported, or has no such class, or it is no environment; or an option that it does not take;
            or what its `prepare` says.
    """
    if isinstance(spec, str) and ":" not in spec and spec not in ENVIRONMENTS:
        raise UserError(
            f"--environment {spec}: give {', '.join(ENVIRONMENTS)}, path/to/file.py:Class or package.module:Class"
        )
    found = resolve(ENVIRONMENTS.get(spec, spec) if isinstance(spec, str) else spec, options=options)
    if not isinstance(found.function, TakeTurn):
        raise UserError(
            f"--environment {found.spec}: {found.name} is no environment: it must be a class with the methods reset(problem) and step(text)"
        )
    found.prepare()
    return found


def as_function(found: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """What was found, as a function with our arguments: a peer's is adapted, and an environment takes turns."""
    return TakeTurn(found) if is_environment(found) else adapt(found, options) or found


def _short_name(spec: str) -> str:
    return spec.rsplit(":", 1)[1] if ":" in spec else spec


def find(spec: str) -> Callable[..., Any]:
    """What a name or a place of a reward function stands for.

    Raises:
        UserError: nothing of that name, or nothing at that place.
    """
    if spec in _registered:
        return _registered[spec]
    for point in entry_points(group=ENTRY_POINTS, name=spec):
        return point.load()
    if ":" in spec:
        return at_place(spec)
    raise UserError(
        f"unknown reward function {spec!r}.{nearest(spec, names())} There are: {', '.join(names())}. Your own: package.module:function, "
        "path/to/file.py:function, or a decorated name in a file given with --reward_plugins"
    )


def at_place(spec: str) -> Callable[..., Any]:
    """What is at `package.module:name` or `path/to/file.py:name`, which is imported.

    Raises:
        UserError: no such place, no such name there, or an import that fails.
    """
    place, colon, name = spec.rpartition(":")
    if not colon:
        raise UserError(f"{spec!r} names no place: give package.module:name or path/to/file.py:name")
    module = import_place(place)
    found = getattr(module, name, None)
    if callable(found):
        return found
    there = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
    raise UserError(f"{place} defines no function {name!r}; it defines: {', '.join(there) or 'none'}")


def load_plugins(specs: Iterable[str]) -> None:
    """Import modules or Python files whose decorated functions can then be named.

    Raises:
        UserError: one can't be imported, or registers nothing.
    """
    for spec in specs:
        module = import_place(spec)
        if not any(f.__module__ == module.__name__ for f in _registered.values()):
            raise UserError(
                f'--reward_plugins {spec} registers no reward function; decorate one with @reward_fn("name")'
            )


def import_place(place: str) -> ModuleType:
    """The module, or the Python file.

    Raises:
        UserError: it can't be imported.
    """
    try:
        return _import_file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except (UserError, KeyboardInterrupt):
        raise
    # Any error inside a user's file is a mistake of the user, `sys.exit()` too: named, with the message of the exception.
    except BaseException as error:
        raise UserError(
            f"can't import {place}: {type(error).__name__}: {_text_of(error)}{_where_raised(error)}"
        ) from error


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # the class is the user's, too
        return "(it can't be said in words)"


def _where_raised(error: BaseException) -> str:
    """` (mine.py:12)`: the last line that was run; nothing where the message says it."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    known = isinstance(error, SyntaxError) or last is None or last.filename.startswith("<")
    return "" if known or last is None else f" ({Path(last.filename).name}:{last.lineno})"


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"{path} is no file" if path.exists() else f"there is no file {path}")
    name = "rlvr_plugin_" + hashlib.blake2b(str(path.resolve()).encode(), digest_size=8).hexdigest()
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
