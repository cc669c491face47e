"""The algebra of sets of real numbers: unions, intersections and complements of intervals.

A set is a tuple of disjoint intervals in ascending order; a point is an interval with equal ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cmp_to_key

from rewards.maths.equal import same_value, sign_of_infinity
from rewards.maths.errors import UndecidedError
from rewards.maths.evaluate import exact
from rewards.maths.numeric import Evaluator
from rewards.maths.syntax import Node, Op, Symbol

INFINITY = Symbol("oo")
MINUS_INFINITY = Op("neg", (INFINITY,))


@dataclass(frozen=True)
class Interval:
    """From `low` to `high`; an end belongs to it or not."""

    low: Node
    low_closed: bool
    high: Node
    high_closed: bool


RealSet = tuple[Interval, ...]
EVERYTHING: RealSet = (Interval(MINUS_INFINITY, False, INFINITY, False),)


class NoSetError(Exception):
    """A node that is no set of real numbers, or whose ends can't be put in order."""


def compare_ends(a: Node, b: Node) -> int:
    """-1, 0 or 1, as a is less than, equal to or greater than b.

    Raises:
        NoSetError: they can't be put in order (variables, complex numbers).
    """
    infinite = sign_of_infinity(a), sign_of_infinity(b)
    if any(infinite):
        return (infinite[0] > infinite[1]) - (infinite[0] < infinite[1])
    exacts = exact(a), exact(b)
    if exacts[0] is not None and exacts[1] is not None:
        return (exacts[0] > exacts[1]) - (exacts[0] < exacts[1])
    if same_value(a, b):
        return 0
    try:
        evaluator = Evaluator({}, 200)
        difference = evaluator.real(evaluator.value(a) - evaluator.value(b))
    except UndecidedError:
        raise NoSetError from None
    return 1 if difference > 0 else -1


def union(intervals: Iterable[Interval]) -> RealSet:
    """Intervals in order, joined where they overlap or touch; empty ones left out."""
    found = [i for i in intervals if not _empty(i)]
    if len(found) < 2:
        return tuple(found)
    found.sort(
        key=cmp_to_key(
            lambda a, b: compare_ends(a.low, b.low) or (b.low_closed > a.low_closed) - (b.low_closed < a.low_closed)
        )
    )
    joined = [found[0]]
    for interval in found[1:]:
        last = joined[-1]
        order = compare_ends(interval.low, last.high)
        if order > 0 or (order == 0 and not (interval.low_closed or last.high_closed)):
            joined.append(interval)
            continue
        ends = compare_ends(interval.high, last.high)
        if ends > 0:
            joined[-1] = replace(last, high=interval.high, high_closed=interval.high_closed)
        elif ends == 0:
            joined[-1] = replace(last, high_closed=last.high_closed or interval.high_closed)
    return tuple(joined)


def _empty(interval: Interval) -> bool:
    try:
        order = compare_ends(interval.low, interval.high)
    except NoSetError:
        return False  # ends with variables: taken as written
    return order > 0 or (order == 0 and not (interval.low_closed and interval.high_closed))


def intersection(a: RealSet, b: RealSet) -> RealSet:
    found = []
    for x in a:
        for y in b:
            lows, highs = compare_ends(x.low, y.low), compare_ends(x.high, y.high)
            low = x if lows > 0 or (lows == 0 and not x.low_closed) else y
            high = x if highs < 0 or (highs == 0 and not x.high_closed) else y
            found.append(Interval(low.low, low.low_closed, high.high, high.high_closed))
    return union(found)


def complement(a: RealSet) -> RealSet:
    """All real numbers that are not in the set."""
    found, low, low_closed = [], MINUS_INFINITY, False
    start: Node = low
    for interval in a:
        found.append(
            Interval(start, low_closed, interval.low, not interval.low_closed and not sign_of_infinity(interval.low))
        )
        start, low_closed = interval.high, not interval.high_closed
    if sign_of_infinity(start) != 1:
        found.append(Interval(start, low_closed, INFINITY, False))
    return union(found)


def same_set(a: RealSet, b: RealSet) -> bool:
    """Whether two sets have the same ends, in order."""
    return len(a) == len(b) and all(_same_interval(x, y) for x, y in zip(a, b, strict=True))


def _same_interval(a: Interval, b: Interval) -> bool:
    if (a.low_closed, a.high_closed) != (b.low_closed, b.high_closed):
        return False
    return _same_end(a.low, b.low) and _same_end(a.high, b.high)


def _same_end(a: Node, b: Node) -> bool:
    infinite = sign_of_infinity(a), sign_of_infinity(b)
    return infinite[0] == infinite[1] if any(infinite) else same_value(a, b)
