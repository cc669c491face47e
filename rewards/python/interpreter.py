"""`run`: a program in a subset of Python, run by our own interpreter.

>>> run("total = 0\\nfor n in range(1, 101):\\n    if n % 3 == 0:\\n        total += n\\nprint(total)").text
'1683\\n'
>>> run("sum(d for d in range(1, 28) if 28 % d == 0)").text
'28\\n'
>>> run("open('/etc/passwd')").error, run("import os").error
("line 1: NameError: name 'open' is not defined", "can't import os; there are: math, fractions, functools, itertools")

The budget counts steps, not seconds: a program comes to the same on every machine, however busy.
"""

import ast
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rewards.maths.limits import Budget, OutOfWorkError, spend
from rewards.python.compiler import Compiler
from rewards.python.functions import CATCHABLE
from rewards.python.values import Machine, NotSupportedError, repr_of

MAX_STEPS = 5_000_000
"""Of a program: about a second, or 80 MB."""
MAX_SOURCE = 10_000
"""Characters of a program."""
MAX_OUTPUT = 10_000
"""Characters that a program may print."""
_FRAMES = 100_000
"""Frames of Python that `MAX_CALLS` calls of `MAX_DEPTH` levels can take, with room. Most are no frames of C."""


@dataclass(frozen=True)
class Ran:
    """What came of a program.

    Attributes:
        text: what it printed, and its last line's value as Python's prompt shows it.
        error: why it ended early; "" if it did not.
        steps: that it took.
        seconds: that it took, where those are counted.
    """

    text: str
    error: str = ""
    steps: float = 0.0
    seconds: float = 0.0


def run(source: str, steps: float = MAX_STEPS) -> Ran:
    """Run a program, which can do nothing but compute and print. Never raises, whatever it is."""
    machine, budget = Machine(MAX_OUTPUT), Budget(steps)
    with budget:
        error = _error_of(source, machine)
    return Ran("".join(machine.printed), error, min(budget.spent, steps))


def _error_of(source: str, machine: Machine) -> str:
    """Run it; returns what went wrong."""
    try:
        with _deep_stack(_parsed(source)) as tree:
            value = Compiler(machine).program(tree)()
            if value is not None:
                machine.write(repr_of(value) + "\n")
    except OutOfWorkError:
        return "more work than a program may take"
    except NotSupportedError as error:
        return f"line {machine.line}: {error}" if machine.line else str(error)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: SyntaxError: {error.msg}"
    except RecursionError:
        return "too many calls within one another"
    except CATCHABLE as error:
        return f"line {machine.line}: {type(error).__name__}: {str(error)[:500]}"
    return ""


def _parsed(source: str) -> ast.Module:
    """Its syntax tree.

    Raises:
        NotSupportedError: it is too long, or nested too deeply.
        SyntaxError: it is no program.
    """
    if len(source) > MAX_SOURCE:
        raise NotSupportedError(f"a program of {len(source):,} characters; at most {MAX_SOURCE:,} are read")
    spend(len(source))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes, which would be printed
        try:
            return ast.parse(source)
        except (ValueError, MemoryError, RecursionError) as error:  # characters that are none; nested too deeply
            raise NotSupportedError(f"it can't be read as a program: {type(error).__name__}") from error


@contextmanager
def _deep_stack(tree: ast.Module) -> Iterator[ast.Module]:
    """Room for the calls that a program may make. Not while it is parsed: the parser's own limit follows this one, and it is written in C."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _FRAMES))
    try:
        yield tree
    finally:
        sys.setrecursionlimit(before)
