"""How a reward function gets into another process: by where it is defined, or else by value."""

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
from rewards.foreign import adapt
from rewards.registry import RewardFunction, _find, _import, names


@dataclass(frozen=True)
class Parcel:
    """A function on its way.

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


def pack(function: RewardFunction, plugins: Sequence[str]) -> Parcel:
    """What another process of this machine needs to have the same function.

    Raises:
        UserError: it is found by no name and can't be sent by value.
    """

    def parcel(how: str, what: str | bytes, qualname: str = "") -> Parcel:
        options = _by_value(dict(function.options), f"the options of reward function {function.name!r}")
        return Parcel(function.name, function.batched, options, how, what, qualname)

    place, _, attribute = function.spec.rpartition(":")
    if attribute.isidentifier() and place and place != "__main__":
        return parcel("spec", str(Path(place).resolve()) + ":" + attribute if place.endswith(".py") else function.spec)
    module = sys.modules.get(getattr(function.function, "__module__", None) or "")
    qualname = getattr(function.function, "__qualname__", "")
    if module is not None and _at(module, qualname) is function.function and (where := _where(module)):
        return parcel("place", where, qualname)
    if plugins and function.spec in names():
        return parcel("spec", function.spec)
    return parcel("value", _by_value(function.function, f"reward function {function.name!r}", module))


def unpack(parcel: Parcel) -> RewardFunction:
    """The function again; the plugins are loaded by now.

    Raises:
        UserError: what defines it can't be imported, or does not define it.
    """
    found: Callable[..., Any] | None
    if parcel.how == "value":
        assert isinstance(parcel.what, bytes)
        found = pickle.loads(parcel.what)  # written by the pool, our parent
    elif parcel.how == "place":
        found = _at(_import(str(parcel.what)), parcel.qualname)
    else:
        found = _find(str(parcel.what))
    if found is None:
        raise UserError(
            f"reward function {parcel.name!r} is not at {parcel.what!r}:{parcel.qualname} in a worker process"
        )
    spec = parcel.what if isinstance(parcel.what, str) else parcel.name
    options = pickle.loads(parcel.options)
    return RewardFunction(parcel.name, adapt(found, options) or found, spec, options, parcel.batched)


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
