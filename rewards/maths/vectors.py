r"""Vectors and matrices: multiples and sums entry by entry, and i, j, k as unit vectors.

>>> from rewards.maths.parser import parse
>>> [len(items) for items in (folded(parse("2(1, x)")).items, components(parse("3i - 2j"), 2))]
[2, 2]
"""

from collections.abc import Callable
from fractions import Fraction

from rewards.maths.syntax import Group, Matrix, Node, Number, Op, Symbol, is_expression, rename, replaced, symbols
from rewards.maths.zero_testing import same_value

_AXES = ("i", "j", "k")


def folded(node: Node) -> Node:
    """Sums and multiples of vectors and matrices as one vector or matrix; anything else as it is."""
    if not isinstance(node, Op) or is_expression(node):
        return node
    args = tuple(map(folded, node.args))
    arrays = [a for a in args if is_array(a)]
    match node.name:
        case "mul" | "neg" if len(arrays) == 1:
            rest = tuple(a for a in args if a is not arrays[0])
            if all(map(is_expression, rest)):
                return _each(arrays[0], lambda entry: Op(node.name, (*rest, entry)))
        case "div" if len(arrays) == 1 and arrays[0] is args[0] and is_expression(args[1]):
            return _each(args[0], lambda entry: Op("div", (entry, args[1])))
        case "add" if len(arrays) == len(args):
            return _sum(args) or Op("add", args)
        case "pow" if is_array(args[0]) and args[1] in (Symbol("T"), Symbol("top")):
            return _transposed(args[0])
    return Op(node.name, args)


def is_array(node: Node) -> bool:
    """A matrix, or a tuple of values."""
    return isinstance(node, Matrix) or (
        isinstance(node, Group)
        and node.brackets in ("()", "[]")
        and len(node.items) > 1
        and all(map(is_expression, node.items))
    )


def components(node: Node, size: int) -> tuple[Node, ...] | None:
    """Of 3i - 2j + k, its three coefficients; None if it is no sum of multiples of i, j and k, or of i alone."""
    axes = _AXES[:size]
    used = {"i"} & _names(node) | (symbols(node) & set(_AXES))
    if not is_expression(node) or not used - {"i"} or not used <= set(axes):
        return None
    node = rename(node, {axis: f"{axis}^" for axis in _AXES})
    parts = []
    for axis in axes:
        part = node
        for other in axes:
            part = replaced(part, f"{other}^", Number(Fraction(int(other == axis))))
        parts.append(part)
    whole = Op("add", tuple(Op("mul", (part, Symbol(f"{axis}^"))) for part, axis in zip(parts, axes, strict=True)))
    return tuple(parts) if same_value(node, whole) else None


def _names(node: Node) -> set[str]:
    """The names in an expression, constants too."""
    if isinstance(node, Symbol):
        return {node.name}
    return set().union(*map(_names, node.args)) if isinstance(node, Op) else set()


def _each(array: Node, rule: Callable[[Node], Node]) -> Node:
    if isinstance(array, Matrix):
        return Matrix(tuple(tuple(rule(entry) for entry in row) for row in array.rows))
    assert isinstance(array, Group)
    return Group(array.brackets, tuple(map(rule, array.items)))


def _sum(arrays: tuple[Node, ...]) -> Node | None:
    """None if their shapes differ."""
    rows = [a.rows if isinstance(a, Matrix) else (a.items,) for a in arrays if isinstance(a, Matrix | Group)]
    if len({(type(a), len(r), len(r[0])) for a, r in zip(arrays, rows, strict=True)}) != 1:
        return None
    summed = tuple(
        tuple(Op("add", entries) for entries in zip(*same_rows, strict=True)) for same_rows in zip(*rows, strict=True)
    )
    first = arrays[0]
    return Group(first.brackets, summed[0]) if isinstance(first, Group) else Matrix(summed)


def _transposed(array: Node) -> Node:
    if isinstance(array, Matrix):
        return Matrix(tuple(zip(*array.rows, strict=True)))
    return array
