"""Sets of real numbers: intervals, inequalities, unions and differences brought to one form.

A set is a tuple of disjoint intervals in ascending order; a point is an interval with equal ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cmp_to_key

from rewards.maths.evaluate import Evaluator, exact
from rewards.maths.limits import UndecidedError, spend
from rewards.maths.syntax import (
    UNNAMED,
    Group,
    Node,
    Number,
    Op,
    Relation,
    SetBuilder,
    SetOp,
    Symbol,
    is_expression,
    is_op,
    replaced,
    symbols,
)
from rewards.maths.zero_testing import same_value, sign_of_infinity

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
    spend(5)
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
    """The numbers that are in both sets."""
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
    """True where two sets have the same ends, in order."""
    return len(a) == len(b) and all(_same_interval(x, y) for x, y in zip(a, b, strict=True))


def _same_interval(a: Interval, b: Interval) -> bool:
    if (a.low_closed, a.high_closed) != (b.low_closed, b.high_closed):
        return False
    return _same_end(a.low, b.low) and _same_end(a.high, b.high)


def _same_end(a: Node, b: Node) -> bool:
    infinite = sign_of_infinity(a), sign_of_infinity(b)
    return infinite[0] == infinite[1] if any(infinite) else same_value(a, b)


# Sets from syntax trees.


_FLIP = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "!=": "!=", "=": "="}


def _name(node: Node) -> str:
    return node.name if isinstance(node, Symbol) else ""


def is_plainly_a_set(node: Node) -> bool:
    """True for a node that can only be a set of numbers (a pair in parentheses may be a point, too)."""
    match node:
        case Relation(sides, ops) if UNNAMED in map(_name, sides):
            return True
        case Relation(_, ops):
            return any(op in ("<", "<=", ">", ">=", "!=") for op in ops) or (
                ops == ("in",) and is_plainly_a_set(node.sides[1])
            )
        case SetOp() | SetBuilder():
            return True
        case Group(brackets, items):
            if brackets in ("[)", "(]", "[]"):
                return len(items) == 2 and all(map(is_expression, items))
            if brackets == "()":
                return len(items) == 2 and any(sign_of_infinity(i) for i in items)
            return brackets == "" and any(is_plainly_a_set(i) for i in items)
    return False


def real_set(node: Node) -> RealSet:
    """The set that a node describes.

    Raises:
        NoSetError: it describes none, or one that we can't put in order.
    """
    match node:
        case Symbol("R"):
            return EVERYTHING
        case Relation(sides, ("in",)):
            return real_set(sides[1])
        case Relation():
            return _of_relation(node)
        case SetBuilder(variable, condition):
            inside = (
                _of_parts(condition.items, either=condition.joined_by_or)
                if isinstance(condition, Group) and not condition.brackets
                else real_set(condition)
            )
            return intersection(real_set(variable), inside) if isinstance(variable, Relation) else inside
        case SetOp(name, left, right):
            a, b = real_set(left), real_set(right)
            return (
                union(a + b)
                if name == "union"
                else intersection(a, b)
                if name == "intersection"
                else intersection(a, complement(b))
            )
        case Group("", items, either):
            return _of_parts(items, either)
        case Group("{}", items):
            return union(tuple(_point(i) for i in items))
        case Group(brackets, (low, high)) if brackets[0] in "([" and brackets[1] in ")]":
            return _checked(Interval(low, brackets[0] == "[", high, brackets[1] == "]"))
    raise NoSetError


def _of_parts(items: tuple[Node, ...], either: bool) -> RealSet:
    """Conditions with "and" hold together if they can; parts that exclude each other, and parts with "or", are a union."""
    parts = [(_point(item),) if is_expression(item) else real_set(item) for item in items]
    if not either and all(isinstance(i, Relation) and i.ops != ("in",) for i in items):
        together = _all_of(parts)
        if together:
            return together
    if all(isinstance(i, Relation) and "!=" in i.ops for i in items):
        return _all_of(parts)
    return union(tuple(interval for part in parts for interval in part))


def _all_of(parts: list[RealSet]) -> RealSet:
    together = EVERYTHING
    for part in parts:
        together = intersection(together, part)
    return together


def _of_relation(node: Relation) -> RealSet:
    """One variable between bounds: "x < 3", "-1 <= x < 2", "2x - 1 > 5", "x != 2"."""
    if len(node.ops) == 1:
        left, right, op = *node.sides, node.ops[0]
        if is_op(left, "abs") and (bounds := _within(op, left.args[0], right)) is not None:
            return bounds
        if isinstance(left, Symbol) and symbols(left) and left.name not in symbols(right):
            return _bounded(op, right)
        if isinstance(right, Symbol) and symbols(right) and right.name not in symbols(left):
            return _bounded(_FLIP.get(op, op), left)
        return _linear(left, op, right)
    if len(node.ops) == 2:
        first = _of_relation(Relation(node.sides[:2], node.ops[:1]))
        second = _of_relation(Relation(node.sides[1:], node.ops[1:]))
        return intersection(first, second)
    raise NoSetError


def _within(op: str, inside: Node, bound: Node) -> RealSet | None:
    """|x - 1| < 3 and |x| > 3, for a bound above zero."""
    if symbols(bound) or op not in ("<", "<=", ">", ">=") or compare_ends(bound, Number(Fraction(0))) <= 0:
        return None
    below, above = Relation((inside, bound), (op,)), Relation((inside, Op("neg", (bound,))), (_FLIP[op],))
    if op in ("<", "<="):
        return intersection(_of_relation(below), _of_relation(above))
    return union(_of_relation(below) + _of_relation(above))


def _linear(left: Node, op: str, right: Node) -> RealSet:
    """a x + b op 0 with rational a and b."""
    difference = Op("add", (left, Op("neg", (right,))))
    names = symbols(difference)
    if len(names) != 1:
        raise NoSetError
    at = [exact(replaced(difference, next(iter(names)), Number(Fraction(x)))) for x in (0, 1, 2)]
    if None in at:
        raise NoSetError
    b, a_b, twice = at
    slope = a_b - b  # type: ignore[operator]
    if slope == 0 or twice - a_b != slope:  # type: ignore[operator]
        raise NoSetError
    return _bounded(op if slope > 0 else _FLIP.get(op, op), Number(-b / slope))  # type: ignore[operator]


def _bounded(op: str, bound: Node) -> RealSet:
    if not is_expression(bound):
        raise NoSetError
    if op in ("<", "<="):
        return (Interval(MINUS_INFINITY, False, bound, op == "<="),)
    if op in (">", ">="):
        return (Interval(bound, op == ">=", INFINITY, False),)
    if op == "=":
        return (_point(bound),)
    if op == "!=":
        return complement((_point(bound),))
    raise NoSetError


def _point(node: Node) -> Interval:
    if not is_expression(node):
        raise NoSetError
    return Interval(node, True, node, True)


def _checked(interval: Interval) -> RealSet:
    """An infinite end is never part of the set, whatever the bracket says."""
    if not (is_expression(interval.low) and is_expression(interval.high)):
        raise NoSetError
    return (
        replace(
            interval,
            low_closed=interval.low_closed and not sign_of_infinity(interval.low),
            high_closed=interval.high_closed and not sign_of_infinity(interval.high),
        ),
    )
