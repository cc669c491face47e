r"""Functions by cases, against each other and against a single expression such as |x|: equal on every interval.

On an interval, equality is that of two expressions in t after x = low + t^2 or its like, which runs through the interval.
"""

from fractions import Fraction

from rewards.maths.sets import (
    EVERYTHING,
    Interval,
    NoSetError,
    RealSet,
    compare_ends,
    complement,
    intersection,
    real_set,
    same_set,
    union,
)
from rewards.maths.syntax import Group, Node, Number, Op, Relation, Symbol, Words, is_expression, replaced, symbols
from rewards.maths.zero_testing import same_value, sign_of_infinity

MAX_PIECES = 6
_OTHERWISE = frozenset({"otherwise", "else", "elsewhere", "in all other cases"})

Pieces = list[tuple[Node, RealSet]]
"""Expressions and where they hold."""


def is_piecewise(node: Node) -> bool:
    """True for a list of pairs of a value and the condition under which it holds."""
    return (
        isinstance(node, Group)
        and node.brackets == ""
        and 1 < len(node.items) <= MAX_PIECES
        and all(map(_is_piece, node.items))
    )


def _is_piece(node: Node) -> bool:
    match node:
        case Group("()", (value, Relation(_, ops))):
            return is_expression(value) and not {"=", "in", "~"} & set(ops)
        case Group("()", (value, Words(text))):
            return is_expression(value) and text in _OTHERWISE
    return False


def same_function(a: Node, g: Node) -> bool:
    """True where two functions of one variable, at least one by cases, are equal wherever either is defined."""
    names = symbols(a) | symbols(g)
    if len(names) != 1:
        return False
    (name,) = names
    try:
        left, right = _pieces(a), _pieces(g)
        if left is None or right is None or not same_set(_where(left), _where(right)):
            return False
        return all(
            _same_on(name, x, y, interval)
            for x, here in left
            for y, there in right
            for interval in intersection(here, there)
        )
    except NoSetError:
        return False


def _pieces(node: Node) -> Pieces | None:
    if is_expression(node):
        return [(node, EVERYTHING)]
    if not is_piecewise(node):
        return None
    found: Pieces = []
    for piece in node.items:  # type: ignore[union-attr]
        value, condition = piece.items  # type: ignore[union-attr]
        found.append((value, complement(_where(found)) if isinstance(condition, Words) else real_set(condition)))
    return found


def _where(pieces: Pieces) -> RealSet:
    return union(interval for _, places in pieces for interval in places)


def _same_on(name: str, a: Node, g: Node, interval: Interval) -> bool:
    low, high = sign_of_infinity(interval.low), sign_of_infinity(interval.high)
    if not low and not high and compare_ends(interval.low, interval.high) == 0:
        inside = interval.low
    else:
        inside = _running_through(interval, bool(low), bool(high))
    return same_value(replaced(a, name, inside), replaced(g, name, inside))


def _running_through(interval: Interval, from_minus_infinity: bool, to_infinity: bool) -> Node:
    """An expression in t whose values are those inside of the interval."""
    t = Symbol("t")
    square = Op("pow", (t, Number(Fraction(2))))
    if from_minus_infinity and to_infinity:
        return t
    if to_infinity:
        return Op("add", (interval.low, square))
    if from_minus_infinity:
        return Op("add", (interval.high, Op("neg", (square,))))
    share = Op("div", (square, Op("add", (Number(Fraction(1)), square))))
    return Op("add", (interval.low, Op("mul", (Op("add", (interval.high, Op("neg", (interval.low,)))), share))))
