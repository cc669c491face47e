"""The budget of work of one verdict, which every stage draws on before it computes, and the errors of `rewards.maths`.

A step is about a microsecond: reading a token takes a few, a sine to 160 bits 20, adding two fractions of 40,000 bits 5,000. Steps
are estimates from sizes, never clocked, so that a verdict is the same on every machine. When the budget is used up the answer is
not equal (stage `budget` of `equivalent`).

Two things are no matter of work and bounded by themselves: how deep an expression is nested (`MAX_DEPTH`), for the stack, and how
many bits an exact number has (`MAX_BITS`), for memory.
"""

import threading
from fractions import Fraction
from types import TracebackType

MAX_WORK = 150_000
"""Steps of one verdict."""
MAX_DEPTH = 50
"""Nesting of brackets, and of the syntax tree."""
MAX_BITS = 40_000
"""No exact number grows beyond this."""


class UnreadableError(Exception):
    """The text is not mathematics that the parser reads, or exceeds a limit."""


class UndecidedError(Exception):
    """An expression has no value at the chosen point, or one that exceeds a limit."""


class OutOfWorkError(Exception):
    """The budget is used up. Nobody but the owner of the `Budget` catches it."""


class _Thread(threading.local):
    left: float = float("inf")


_thread = _Thread()


def spend(steps: float) -> None:
    """Take steps off this thread's budget, before they are done; outside of every `Budget` there is no end of them.

    Raises:
        OutOfWorkError: the budget does not have so many left.
    """
    left = _thread.left - steps
    if left < 0:
        raise OutOfWorkError("more work than a verdict may take")
    _thread.left = left


def size(value: Fraction) -> int:
    """Bits of the longer one of numerator and denominator."""
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def spend_on_bits(bits: int) -> None:
    """Take off what one operation on exact fractions of this size costs: multiplying is quadratic, and so is reducing."""
    spend(2 + bits / 150 + 3e-6 * bits * bits)


class Budget:
    """Within it, the work of this thread is counted and bounded. One within another has steps of its own.

    >>> with Budget(10) as budget:
    ...     spend(4)
    >>> budget.spent
    4
    """

    def __init__(self, steps: float = MAX_WORK) -> None:
        self.steps = steps
        self.spent: float = 0

    def __enter__(self) -> "Budget":
        self._outer, _thread.left = _thread.left, self.steps
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.spent = self.steps - _thread.left
        _thread.left = self._outer
