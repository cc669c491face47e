"""Limits on the work that a verdict may take, and the two errors of `rewards.maths`.

Both errors are caught inside the package and end in "not equal". Limits on the size of a text, a tree or a number stand
beside the code that checks them (`MAX_...`).
"""

import threading

MAX_WORK = 8_000
"""The budget of one verdict, in evaluations of a real function to 160 bits (about 20 microseconds each)."""


class UnreadableError(Exception):
    """The text is not mathematics that the parser reads, or exceeds a limit."""


class UndecidedError(Exception):
    """An expression has no value at the chosen point, or one that exceeds a limit."""


_of_thread = threading.local()


def renew_budget() -> None:
    """Give this thread the whole budget of a verdict."""
    _of_thread.left = MAX_WORK


def spend(work: float) -> None:
    """Take work off this thread's budget.

    Raises:
        UndecidedError: the budget is used up.
    """
    _of_thread.left = getattr(_of_thread, "left", MAX_WORK) - work
    if _of_thread.left < 0:
        raise UndecidedError("too much work")
