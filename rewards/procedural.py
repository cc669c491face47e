"""Procedural tasks of reasoning-gym: entries that are made from a seed, and what an answer to one earns.

An entry is named by its task, settings, seed and index, and made anew wherever it is needed: what has to be sent to a reward worker is
these four.

Each task has a verifier of its own, which pays. Some of them run the answer as code (`eval`, sympy's `parse_expr`), and an answer is
hostile text. Those of lists read it as a literal here; those of expressions and formulas are replaced by our parser
(`_OURS`); one that would run an answer in any other way is refused.
"""

import ast
import inspect
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

from rewards.errors import UserError, nearest
from rewards.maths import equivalent
from rewards.maths.evaluate import exact
from rewards.maths.limits import Budget, OutOfWorkError, UndecidedError, UnreadableError
from rewards.maths.parser import parse
from rewards.maths.syntax import Node, Number, Op

PACKAGE = "reasoning_gym"
MAX_ANSWER_CHARACTERS = 10_000

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """A task of reasoning-gym with its settings.

    Attributes:
        name: as reasoning-gym has it, such as `chain_sum`.
        settings: of its configuration, name and value.
        seed: other seeds give other entries.
        size: how many entries there are; some tasks make them all at once.

    Raises:
        UserError: reasoning-gym is not installed, or has no such task or setting, or refuses a value; or the task's
            verifier runs answers as code.
    """

    name: str
    settings: tuple[tuple[str, Any], ...] = ()
    seed: int = 0
    size: int = 20_000

    def __post_init__(self) -> None:
        self._data  # noqa: B018  refuse now what can't be made

    @cached_property
    def _data(self) -> Any:
        make, config = _find(self.name)
        known = [field.name for field in fields(config) if field.name not in ("seed", "size")]
        for name, _ in self.settings:
            if name not in known:
                raise UserError(
                    f"{PACKAGE}:{self.name} has no setting {name!r}; it has {', '.join(known)}, and size.{nearest(name, known)}"
                )
        _make_safe(self.name, make)
        try:
            return make(config(seed=self.seed, size=self.size, **dict(self.settings)))
        except (AssertionError, ValueError, TypeError, KeyError) as error:
            given = ", ".join(f"{name}={value}" for name, value in (*self.settings, ("size", self.size)))
            raise UserError(f"{PACKAGE}:{self.name} refuses its settings ({given}): {error}") from error

    def entry(self, index: int) -> Entry:
        """The entry at this place: question, answer (None where the task has several and names none), metadata."""
        return self._data[index]

    def pays(self, answer: str, entry: Entry) -> float:
        """What an answer earns, 0 to 1. An answer on which the verifier fails earns nothing.

        Raises:
            ValueError: with what the verifier said, of an answer that it can't read.
        """
        if len(answer) > MAX_ANSWER_CHARACTERS:
            raise ValueError(f"an answer of {len(answer)} characters")
        verify = _OURS.get(self.name) or self._data.score_answer
        try:
            value = float(verify(answer, entry))
        except Exception as error:  # of code that is not ours, on text that it was not written for
            raise ValueError(f"{type(error).__name__}: {error}") from error
        return min(1.0, max(0.0, value)) if math.isfinite(value) else 0.0


@lru_cache(maxsize=64)
def task(name: str, settings: tuple[tuple[str, Any], ...], seed: int, size: int) -> Task:
    """`Task`, made once for each process."""
    return Task(name, settings, seed, size)


def task_names() -> list[str]:
    """All tasks that can be trained on.

    Raises:
        UserError: reasoning-gym is not installed.
    """
    return sorted(name for name, (make, _) in all_tasks().items() if not _runs_answers(name, make))


def all_tasks() -> Mapping[str, tuple[Any, Any]]:
    """Class and configuration of each task, by name; the first call imports them, for seconds.

    Raises:
        UserError: reasoning-gym is not installed.
    """
    try:
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise UserError("tasks of reasoning-gym need its package: pip install 'rlvr[reasoning-gym]'") from None
    return DATASETS


def _find(name: str) -> tuple[Any, Any]:
    tasks = all_tasks()
    if name not in tasks:
        some = ", ".join(sorted(tasks)[:5])
        raise UserError(
            f"reasoning-gym has no task {name!r}.{nearest(name, tasks) or f' Some of its {len(tasks)}: {some}'}"
        )
    return tasks[name]


# Verifiers that run what they are given.

_LITERALS = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Their verifiers read lists by `eval`."""
_ITS_OWN = frozenset({"bitwise_arithmetic", "number_sorting"})
"""Their verifiers evaluate what the task has made, not the answer."""
_RUNS = frozenset(
    {"eval", "exec", "compile", "parse_expr", "sympify", "parse_latex", "loads", "__import__", "system", "Popen", "run"}
)


def _make_safe(name: str, make: Any) -> None:
    """See to it that the verifier runs no answer.

    Raises:
        UserError: it would.
    """
    if name in _LITERALS:
        # A module's own name hides the built-in one.
        inspect.getmodule(make).eval = ast.literal_eval  # type: ignore[union-attr]
    elif _runs_answers(name, make):
        raise UserError(f"{PACKAGE}:{name} can't be trained on: its verifier runs the answer as code")


def _runs_answers(name: str, make: Any) -> bool:
    if name in _LITERALS | _ITS_OWN or name in _OURS:
        return False
    return any(
        _called(node.func) in _RUNS
        for source in _sources(make)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
    )


def _called(function: ast.expr) -> str:
    """The name of what is called; "" for the functions of `re` and `json`, which run nothing."""
    if isinstance(function, ast.Name):
        return function.id
    of = getattr(function, "value", None)
    return "" if isinstance(of, ast.Name) and of.id in ("re", "json") else getattr(function, "attr", "")


def _sources(make: Any) -> Iterator[str]:
    """The verifier, and all methods and functions of its module that it comes to."""
    module, todo, seen = inspect.getmodule(make), ["score_answer"], set()
    while todo:
        name = todo.pop()
        function = getattr(make, name, None) or getattr(module, name, None)
        if name in seen or not inspect.isfunction(function):
            continue
        seen.add(name)
        source = textwrap.dedent(inspect.getsource(function))
        yield source
        if function.__module__.startswith(PACKAGE):
            todo += re.findall(r"(\w+)\(", source)


# Verifiers of ours, in place of those that run the answer.


def _same(answer: str, entry: Entry) -> float:
    """A formula, or an antiderivative: equal to the right one."""
    return float(equivalent(_powers(answer), _powers(entry["answer"]))[0])


def _powers(text: str) -> str:
    return text.replace("**", "^")


def _countdown(answer: str, entry: Entry) -> float:
    """An expression of all the numbers that has the value asked for."""
    data = entry["metadata"]
    return _expression(answer, data["numbers"], data["target"])


def _puzzle24(answer: str, entry: Entry) -> float:
    """The same for 24. (reasoning-gym's own takes any four numbers of the range.)"""
    return _expression(answer, entry["metadata"]["numbers"], 24)


def _expression(answer: str, numbers: list[int], target: int) -> float:
    try:
        with Budget():
            node = parse(answer)
            used = Counter(_numbers(node))
            return float(used == Counter(numbers) and exact(node) == target)
    except (UnreadableError, UndecidedError, OutOfWorkError):
        return 0.0


def _numbers(node: Node) -> Iterator[int | None]:
    """The numbers of sums, differences, products and quotients; None for anything else."""
    if isinstance(node, Number) and node.value.denominator == 1:
        # The parser reads 5 - 3 as 5 + (-3).
        yield abs(int(node.value))
    elif isinstance(node, Op) and node.name in ("add", "mul", "div", "neg"):
        for part in node.args:
            yield from _numbers(part)
    else:
        yield None


_OURS: Mapping[str, Callable[[str, Entry], float]] = {
    "countdown": _countdown,
    "intermediate_integration": _same,
    "polynomial_multiplication": _same,
    "puzzle24": _puzzle24,
    "simple_integration": _same,
}
