"""Send reward functions to worker processes: by reference (where they are defined), or else by value (cloudpickle)."""

import importlib
import importlib.util
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rewards.errors import UserError
from rewards.registry import RewardFunction, as_function, find, import_place, names


@dataclass(frozen=True)
class PackedFunction:
    """A reward function, packed for another process.

    Attributes:
        how: `spec` (as `resolve` finds it), `place` (module or file, and qualified name), or `value` (cloudpickle).
        what: the spec; the module or file; the pickle.
        qualname: for `place`.
    """

    name: str
    batched: bool
    options: bytes
    how: str
    what: str | bytes
    qualname: str = ""


def pack(function: RewardFunction, plugins: Sequence[str]) -> PackedFunction:
    """Pack a function for another process of this machine.

    Raises:
        UserError: it is found by no name and can't be sent by value.
    """

    def packed(how: str, what: str | bytes, qualname: str = "") -> PackedFunction:
        options = _by_value(dict(function.options), f"the options of reward function {function.name!r}")
        return PackedFunction(function.name, function.batched, options, how, what, qualname)

    place, _, attribute = function.spec.rpartition(":")
    if attribute.isidentifier() and place and place != "__main__":
        return packed("spec", str(Path(place).resolve()) + ":" + attribute if place.endswith(".py") else function.spec)
    module = sys.modules.get(getattr(function.function, "__module__", None) or "")
    qualname = getattr(function.function, "__qualname__", "")
    if module is not None and _at(module, qualname) is function.function and (where := _where(module)):
        return packed("place", where, qualname)
    if plugins and function.spec in names():
        return packed("spec", function.spec)
    return packed("value", _by_value(function.function, f"reward function {function.name!r}", module))


def unpack(packed: PackedFunction) -> RewardFunction:
    """The function again; the plugins are loaded by now.

    Raises:
        UserError: what defines it can't be imported, or does not define it.
    """
    found: Callable[..., Any] | None
    if packed.how == "value":
        assert isinstance(packed.what, bytes)
        found = pickle.loads(packed.what)  # written by the pool, our parent
    elif packed.how == "place":
        found = _at(import_place(str(packed.what)), packed.qualname)
    else:
        found = find(str(packed.what))
    if found is None:
        raise UserError(
            f"reward function {packed.name!r} is not at {packed.what!r}:{packed.qualname} in a worker process"
        )
    spec = packed.what if isinstance(packed.what, str) else packed.name
    options = pickle.loads(packed.options)
    return RewardFunction(packed.name, as_function(found, options), spec, options, packed.batched)


def _at(module: ModuleType, qualname: str) -> Any:
    found: Any = module
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def _where(module: ModuleType) -> str | None:
    """The module's name, or the file of a plugin; None where another process would not find the same module."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or file is None:
        return None
    if module.__name__.startswith("rlvr_plugin_"):
        return str(Path(file).resolve())
    try:
        spec = importlib.util.find_spec(module.__name__)
    except (ImportError, ValueError):
        return None
    return module.__name__ if spec is not None and spec.origin == file else None


def _by_value(thing: Any, called: str, module: ModuleType | None = None) -> bytes:
    import cloudpickle

    # A module that another process can't import goes along; `__main__` does by itself.
    along = module is not None and module.__name__ != "__main__" and _where(module) is None
    try:
        if along:
            cloudpickle.register_pickle_by_value(module)
        return cloudpickle.dumps(thing)
    # Pickling runs the methods of whatever the user's function holds: anything may come of it, and all of it is this.
    except Exception as error:
        raise UserError(
            f"{called} can't be sent to a worker process: {type(error).__name__}: {error}. Put the function in a file of its "
            "own and name it path/to/file.py:function or package.module:function"
        ) from error
    finally:
        if along:
            cloudpickle.unregister_pickle_by_value(module)
