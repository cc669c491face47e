"""Answers in their shortest form: without intermediate steps, approximations and plus-minus signs."""

from fractions import Fraction
from itertools import product
from math import prod

from rewards.maths.evaluate import exact
from rewards.maths.syntax import (
    COUNTED,
    Group,
    Node,
    Number,
    Op,
    Quantity,
    Relation,
    contains,
    is_expression,
    is_name,
    symbols,
)
from rewards.maths.units import size
from rewards.maths.values import approximate
from rewards.maths.vectors import folded
from rewards.maths.zero_testing import same_value

MAX_SIGNS = 16


def simplify(node: Node) -> Node | None:
    """Without approximations, intermediate steps and plus-minus signs; None for "41 = 42"."""
    if isinstance(node, Relation):
        short = _cut(node)
        if short is None:
            return None
        node = short
    if isinstance(node, Quantity):
        value = simplify(node.value)
        return None if value is None else _measured(value, node.unit)
    if isinstance(node, Group):
        items = [simplify(item) for item in node.items]
        if any(item is None for item in items):
            return None
        node = Group(node.brackets, tuple(i for i in items if i is not None), node.joined_by_or)
        return _written_once(node) if node.brackets == "" else node
    return folded(node)


def _written_once(node: Group) -> Node:
    """A bare list whose parts belong together: "x = 2, 3", "x != 1, 2", "2 hours 30 minutes"."""
    first, *rest = node.items
    if (sum_of_measures := _in_first_unit(node)) is not None:
        return sum_of_measures
    if isinstance(first, Relation) and len(first.ops) == 1 and all(map(is_expression, rest)):
        if first.ops == ("=",) and is_name(first.sides[0]):
            return Group("", (first.sides[1], *rest), node.joined_by_or)
        if first.ops == ("!=",):
            return Group("", (first, *(Relation((first.sides[0], r), ("!=",)) for r in rest)), node.joined_by_or)
    return node


def _in_first_unit(node: Group) -> Node | None:
    """2 hours and 30 minutes are one quantity: 5/2 hours. None for anything but falling units of one kind."""
    parts = [(i.value, size(i.unit)) for i in node.items if isinstance(i, Quantity) and not i.unit.startswith(COUNTED)]
    if len(parts) != len(node.items) or len(parts) < 2 or node.joined_by_or:
        return None
    sizes = [s for _, s in parts if s is not None]
    if len(sizes) != len(parts) or len({kind for kind, _ in sizes}) != 1 or len(sizes[0][0]) != 1:
        return None
    ones = [one for _, one in sizes]
    if ones != sorted(ones, reverse=True) or len(set(ones)) != len(ones) or not all(is_expression(v) for v, _ in parts):
        return None
    terms = tuple(Op("mul", (v, Number(one / ones[0]))) for (v, _), one in zip(parts, ones, strict=True))
    total = exact(whole := Op("add", terms))
    first = node.items[0]
    assert isinstance(first, Quantity)
    return Quantity(whole if total is None else Number(total), first.unit)


def _measured(value: Node, unit: str) -> Node:
    """The unit of the whole list is each part's: "5 and 7 meters" """
    if isinstance(value, Group) and value.brackets == "":
        return Group("", tuple(_measured(i, unit) for i in value.items), value.joined_by_or)
    return Quantity(value, unit)


def _cut(node: Relation) -> Node | None:
    """Of "x = 3 + 4 = 7 ~ 7.0" remains "x = 7". A chain of numbers that differ, "41 = 42" or
    "x = 41 = 42", says nothing; a slip in the middle of "x = 5 + 6 = 10 = 11" is forgiven."""
    sides, ops = node.sides, node.ops
    if "~" in ops:
        place = ops.index("~")
        if place == 0 and is_name(sides[0]):
            sides, ops = sides[:2], ("=",)  # x ~ 3.16
        elif is_name(sides[0]) or _is_approximation(sides[place + 1], sides[place]):
            sides, ops = sides[: place + 1], ops[:place]
        else:
            return None
    if ops and set(ops) == {"="}:
        values = [exact(s) for s in sides if is_expression(s) and not symbols(s)]
        if len(set(values)) > 1 and not (is_name(sides[0]) and values[0] == values[-1] is not None):
            if None not in values or not _all_alike([s for s in sides if is_expression(s) and not symbols(s)]):
                return None
        if all(is_expression(s) and not symbols(s) for s in sides):
            return sides[-1]  # a calculation: what it comes to
        sides, ops = (sides[0], sides[-1]), ("=",)
    return Relation(tuple(map(folded, sides)), ops) if ops else sides[0]


def _all_alike(sides: list[Node]) -> bool:
    """True where irrational numbers in a chain are equal."""
    return all(same_value(side, sides[-1]) for side in sides[:-1])


def _is_approximation(rough: Node, node: Node) -> bool:
    """True where one number is the other rounded, or within one per cent of it; 3 ~ 5 is not an approximation."""
    value, target = approximate(node), approximate(rough)
    if value is None or target is None:
        return True
    unit = Fraction(0)
    if isinstance(rough, Number):
        unit = Fraction(10) ** -(rough.places or 0)
        while 1 <= unit < 10**12 and rough.value and rough.value % (10 * unit) == 0:
            unit *= 10  # 1200 may be rounded to hundreds
    return abs(value - target) <= max(unit / 2, abs(value) / 100)


def without_signs(node: Node) -> Node:
    """Plus-minus written out: a list of both."""
    if not contains(node, "pm", "mp"):
        return node
    if isinstance(node, Group) and node.brackets in ("", "{}"):
        items = tuple(choice for item in node.items for choice in _choices(item))
        return Group(node.brackets, items, node.joined_by_or)
    if isinstance(node, Relation) and isinstance(node.sides[-1], Group) and node.sides[-1].brackets in ("", "{}"):
        return Relation((*node.sides[:-1], without_signs(node.sides[-1])), node.ops)
    choices = _choices(node)
    return choices[0] if len(choices) == 1 else Group("", tuple(choices))


def _choices(node: Node) -> list[Node]:
    """A node for each choice of signs. In one expression all signs go together; parts of a tuple choose freely."""
    if not contains(node, "pm", "mp"):
        return [node]
    if isinstance(node, Group):
        parts = [_choices(item) for item in node.items]
        if prod(len(p) for p in parts) > MAX_SIGNS:
            return [node]
        return [Group(node.brackets, items, node.joined_by_or) for items in product(*parts)]
    return [_signed(node, upper) for upper in (True, False)]


def _signed(node: Node, upper: bool) -> Node:
    match node:
        case Op("pm" | "mp" as name, (left, right)):
            right = _signed(right, upper)
            return Op("add", (_signed(left, upper), right if (name == "pm") == upper else Op("neg", (right,))))
        case Op(name, args):
            return Op(name, tuple(_signed(a, upper) for a in args))
        case Relation(sides, ops):
            return Relation(tuple(_signed(s, upper) for s in sides), ops)
        case Quantity(value, unit):
            return Quantity(_signed(value, upper), unit)
    return node
