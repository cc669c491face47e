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


_REAL_PARAMETERS = frozenset("t s u v r lambda mu".split())


def same_line(a: Node, g: Node) -> bool:
    """True where two tuples, each linear in one real parameter, are the same line: from any of its points, at any speed."""
    line, other = _point_and_direction(a), _point_and_direction(g)
    if line is None or other is None or len(line[0]) != len(other[0]):
        return False
    (point, direction), (start, ahead) = line, other
    between = tuple(_minus(p, s) for p, s in zip(point, start, strict=True))
    return _parallel(direction, ahead) and _parallel(between, ahead)


def _point_and_direction(node: Node) -> tuple[tuple[Node, ...], tuple[Node, ...]] | None:
    if (
        not isinstance(node, Group)
        or not is_array(node)
        or len(symbols(node)) != 1
        or not symbols(node) <= _REAL_PARAMETERS
    ):
        return None
    (name,) = symbols(node)
    at = [tuple(replaced(item, name, Number(Fraction(k))) for item in node.items) for k in (0, 1)]
    direction = tuple(_minus(end, start) for start, end in zip(*at, strict=True))
    line = (Op("add", (start, Op("mul", (Symbol(name), step)))) for start, step in zip(at[0], direction, strict=True))
    zero = Number(Fraction(0))
    if all(same_value(step, zero) for step in direction) or not all(map(same_value, node.items, line)):
        return None
    return at[0], direction


def _minus(a: Node, b: Node) -> Node:
    return Op("add", (a, Op("neg", (b,))))


def _parallel(a: tuple[Node, ...], b: tuple[Node, ...]) -> bool:
    """All of their cross products are 0; the second is not 0 itself."""
    return all(
        same_value(Op("mul", (a[i], b[j])), Op("mul", (a[j], b[i])))
        for i in range(len(a))
        for j in range(i + 1, len(a))
    )
