"""Import a package without what only its unused parts need.

ColossalAI imports peft for LoRA through its Booster, bitsandbytes for 8-bit optimizers, and compiles its fp8 kernels when
they are defined. Together that brings torch's inductor, networkx and half of transformers: most of the processor time of
every process's start, and a run uses none of it (our LoRA imports peft itself, `rlvr.models.lora_config`).

Tried and left out: a copy of ColossalAI without these imports (somebody would have to keep it), and empty modules in their
place, with which a model that has a LoRA adapter would no longer be recognised as one.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch


@contextmanager
def deferred(*packages: str) -> Iterator[None]:
    """Defer these packages and `torch.compile` in everything that is imported inside, until it uses them.

    A name imported from such a package is a stand-in: it imports the package when it is called, iterated or asked for an
    attribute, and `isinstance` with it is right at any time, since nothing is of a class that was never imported. A class
    derived from one is defined, but can't be made. Afterwards `import` finds the packages themselves. A package that is
    imported already, or not installed, is left alone.
    """
    finder = _StandInFinder({p for p in packages if p not in sys.modules and PathFinder.find_spec(p) is not None})
    compile_now = torch.compile
    sys.meta_path.insert(0, finder)
    torch.compile = _compile_when_called(compile_now)
    try:
        yield
    finally:
        torch.compile = compile_now
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.stands_for(name)]:
            del sys.modules[name]


class StandIn:
    """A name of a module that is imported when the name is used."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name

    def _real(self) -> Any:
        return getattr(import_module(self._module), self._name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._real()(*args, **kwargs)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._real())

    def __instancecheck__(self, instance: object) -> bool:
        return self._module in sys.modules and isinstance(instance, self._real())

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type]:
        def refuse(*args: Any, **kwargs: Any) -> None:
            raise ImportError(f"import {self._module} before rlvr starts a process group: a class here derives from it")

        return (type(self._name, (), {"__init__": refuse, "__module__": self._module}),)


class _StandInFinder(MetaPathFinder, Loader):
    """Finds, for the packages and all modules in them, modules of stand-ins."""

    def __init__(self, packages: set[str]) -> None:
        self.packages = packages

    def stands_for(self, module: str) -> bool:
        return module.partition(".")[0] in self.packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if self.stands_for(fullname) else None

    def exec_module(self, module: ModuleType) -> None:
        def stand_in(name: str) -> StandIn:
            if name.startswith(
                "__"
            ):  # asked for by the import system and by `hasattr`; none of them is a setting of it
                raise AttributeError(name)
            return StandIn(module.__name__, name)

        module.__dict__["__getattr__"] = stand_in


def _compile_when_called(compile_now: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile`, which as a decorator with settings compiles (and loads the compiler) at the function's first call."""

    def compile_later(model: Callable[..., Any] | None = None, **settings: Any) -> Callable[..., Any]:
        if model is not None:
            return compile_now(model, **settings)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            compiled = cache(lambda: compile_now(function, **settings))
            return wraps(function)(lambda *args, **kwargs: compiled()(*args, **kwargs))

        return decorate

    return compile_later
