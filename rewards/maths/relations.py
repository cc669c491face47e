"""Whether two equations or inequalities say the same: by the value that they name, or as multiples of each other."""

from collections.abc import Callable
from fractions import Fraction

from rewards.maths.equal import same_value
from rewards.maths.evaluate import exact
from rewards.maths.simplify import is_name
from rewards.maths.syntax import Node, Number, Op, Relation, Symbol, is_expression, rename, replaced, symbols
from rewards.maths.words import FUNCTIONS

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
    if (spoken := _stated(a)) is not None and is_expression(g) and not symbols(g):
        return same(spoken, g)
    named_a, named_g = named(a), named(g)
    if named_a and named_g:
        if _same_name(named_a[0], named_g[0]):
            return same(_to_variables_of(named_a, named_g), named_g[1])
        return _same_equation(a, g)
    if named_a:
        return same(named_a[1], g) if not isinstance(g, Relation) else _same_equation(a, g)
    if named_g:
        if isinstance(a, Relation):
            return _same_equation(a, g)
        return same(a, named_g[1]) if not _is_equation_of_several(named_g[0]) else False
    if isinstance(a, Relation) and isinstance(g, Relation):
        return _same_equation(a, g)
    return isinstance(g, Relation) and _solved_for_missing(a, g)


def _stated(node: Node) -> Node | None:
    """The value of a quantity made of several letters, or of a function: m + n = 25, sin A = 3/5.

    Only an answer may say so much; as a gold, x + y = 3 is a line.
    """
    if not isinstance(node, Relation) or node.ops != ("=",):
        return None
    quantity, value = node.sides
    if not is_expression(value) or symbols(value) or not is_expression(quantity):
        return None
    of_name = isinstance(quantity, Op) and quantity.name in FUNCTIONS and all(map(is_name, quantity.args))
    return value if of_name or len(symbols(quantity)) > 1 else None


def _is_equation_of_several(name: Node) -> bool:
    """xy in "xy = 6" is no name but a product; AB in "AB = 6" is a segment."""
    return isinstance(name, Op) and name.name in ("mul", "div") and any(n.islower() for n in symbols(name))


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
        same = a.args[0] == g.args[0] and len(a.args) == len(g.args)
        return same and all(
            x == z or (_is_variable(x) and _is_variable(z)) for x, z in zip(a.args, g.args, strict=True)
        )
    y = Symbol("y")
    return a == g or (a == y and _is_call(g)) or (g == y and _is_call(a))


def _is_variable(node: Node) -> bool:
    """The n of f(n), which may have another letter; not the A of P(A), nor the 2 of f(2)."""
    return isinstance(node, Symbol) and len(node.name) == 1 and node.name.islower()


def _is_call(node: Node) -> bool:
    """f(x), for which people write y, too."""
    return isinstance(node, Op) and node.name == "call" and len(node.args) == 2


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
    return _factor(_difference(a), _difference(g)) is not None or _monomial_factor(_difference(a), _difference(g))


def _monomial_factor(a: Node, g: Node) -> bool:
    """Whether one is the other times a product of powers of the variables, as xy - 1 is x (y - 1/x)."""
    names = sorted(symbols(a) | symbols(g))
    if not (is_expression(a) and is_expression(g)) or symbols(a) != symbols(g) or not names:
        return False
    powers = []
    for name in names:
        ratios = {_growth(a, g, names, name, start) for start in (3, 7)}
        if len(ratios) != 1 or (growth := ratios.pop()) is None:
            return False
        power = growth.numerator.bit_length() - growth.denominator.bit_length()
        if growth != Fraction(2) ** power or abs(power) > 3:
            return False
        powers.append(Op("pow", (Symbol(name), Number(Fraction(power)))))
    return _factor(a, Op("mul", (g, *powers))) is not None


def _growth(a: Node, g: Node, names: list[str], name: str, start: int) -> Fraction | None:
    """By how much a / g grows when one variable doubles."""
    values = [
        exact(_at(replaced(n, name, scaled), names, start)) for n in (a, g) for scaled in (_twice(name), Symbol(name))
    ]
    if any(v is None or v == 0 for v in values):
        return None
    above, above_before, below, below_before = (v or Fraction(1) for v in values)
    return above * below_before / (above_before * below)


def _twice(name: str) -> Node:
    return Op("mul", (Number(Fraction(2)), Symbol(name)))


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
        node = replaced(node, name, Number(Fraction(start + 2 * place, 2)))
    return node


def _solved_for_missing(a: Node, g: Relation) -> bool:
    """The gold is an equation in x and y, the answer the expression that y equals."""
    missing = symbols(g) - symbols(a)
    if not is_expression(a) or not symbols(a) or len(missing) != 1:
        return False
    name = next(iter(missing))
    difference = _difference(g)
    if not is_expression(difference):
        return False
    at = [replaced(difference, name, Number(Fraction(value))) for value in (0, 1, 2)]
    slope = Op("add", (at[1], Op("neg", (at[0],))))
    zero = Number(Fraction(0))
    linear = same_value(Op("add", (at[2], Op("neg", (at[1],)))), slope) and not same_value(slope, zero)
    return linear and same_value(replaced(difference, name, a), zero)
