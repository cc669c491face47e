"""Whether two equations or inequalities say the same: by the value that they name, or as multiples of each other."""

from collections.abc import Callable
from fractions import Fraction

from rewards.maths.equal import same_value
from rewards.maths.evaluate import exact
from rewards.maths.realsets import substitute
from rewards.maths.simplify import is_name
from rewards.maths.syntax import Node, Number, Op, Relation, Symbol, is_expression, rename, symbols

Same = Callable[[Node, Node], bool]
"""The comparison of parts; handed in, because parts may be anything."""


def same_inequality(a: Relation, g: Relation, same: Same) -> bool:
    """One is the other times a number; a negative number turns the sign around."""
    if len(a.ops) != len(g.ops):
        return False
    if len(a.ops) > 1:
        straight = a.ops == g.ops and all(map(same, a.sides, g.sides))
        turned = tuple({"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op) for op in reversed(a.ops))
        return straight or (turned == g.ops and all(map(same, reversed(a.sides), g.sides)))
    factor = _factor(_difference(a), _difference(g))
    if factor is None:
        return False
    turn = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
    return (a.ops[0] if factor > 0 else turn.get(a.ops[0], a.ops[0])) == g.ops[0]


def same_relations(a: Node, g: Node, same: Same) -> bool:
    """An equation may leave out what it names ("x = 5" for 5), and two equations may be multiples of each other."""
    named_a, named_g = named(a), named(g)
    if named_a and named_g:
        if _same_name(named_a[0], named_g[0]):
            return same(_to_variables_of(named_a, named_g), named_g[1])
        return _same_equation(a, g)
    if named_a:
        return same(named_a[1], g) if not isinstance(g, Relation) else _same_equation(a, g)
    if named_g:
        return same(a, named_g[1]) if not isinstance(a, Relation) else _same_equation(a, g)
    if isinstance(a, Relation) and isinstance(g, Relation):
        return _same_equation(a, g)
    return isinstance(g, Relation) and _solved_for_missing(a, g)


def named(node: Node) -> tuple[Node, Node] | None:
    """What an equation names, and the value that it gives it."""
    if not isinstance(node, Relation) or len(node.sides) != 2 or node.ops[0] not in ("=", "in"):
        return None
    left, right = node.sides
    if is_name(left):
        return left, right
    return (right, left) if is_name(right) else None


def _same_name(a: Node, g: Node) -> bool:
    if isinstance(a, Op) and isinstance(g, Op) and a.name == g.name == "call":
        return a.args[0] == g.args[0] and len(a.args) == len(g.args)
    return a == g


def _to_variables_of(a: tuple[Node, Node], g: tuple[Node, Node]) -> Node:
    """The value of f(m) = ... in the letters of f(n) = ..."""
    if isinstance(a[0], Op) and isinstance(g[0], Op) and a[0].name == "call":
        old, new = ([x.name for x in n.args[1:] if isinstance(x, Symbol)] for n in (a[0], g[0]))
        if len(old) == len(new):
            return rename(a[1], dict(zip(old, new, strict=True)))
    return a[1]


def _difference(node: Relation) -> Node:
    return Op("add", (node.sides[0], Op("neg", (node.sides[-1],))))


def _same_equation(a: Node, g: Node) -> bool:
    if (
        not (isinstance(a, Relation) and isinstance(g, Relation))
        or a.ops != g.ops
        or len(a.ops) != 1
        or a.ops[0] not in ("=", "!=")
    ):
        return False
    return _factor(_difference(a), _difference(g)) is not None


def _factor(a: Node, g: Node) -> Fraction | None:
    """The number c, not 0, with a = c g; None if there is none."""
    names = symbols(a) | symbols(g)
    if not (is_expression(a) and is_expression(g)) or symbols(a) != symbols(g) or not names:
        return None
    for start in (3, 7, 11):
        values = [exact(_at(node, sorted(names), start)) for node in (a, g)]
        if values[0] and values[1]:
            factor = values[0] / values[1]
            return factor if same_value(a, Op("mul", (Number(factor), g))) else None
    return Fraction(1) if same_value(a, g) else Fraction(-1) if same_value(a, Op("neg", (g,))) else None


def _at(node: Node, names: list[str], start: int) -> Node:
    for place, name in enumerate(names):
        node = substitute(node, name, Fraction(start + 2 * place, 2))
    return node


def _solved_for_missing(a: Node, g: Relation) -> bool:
    """The gold is an equation in x and y, the answer the expression that y equals."""
    missing = symbols(g) - symbols(a)
    if not is_expression(a) or not symbols(a) or len(missing) != 1:
        return False
    return _same_equation(Relation((Symbol(next(iter(missing))), a), ("=",)), g)
