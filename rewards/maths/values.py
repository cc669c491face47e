"""Whether two values are the same: percentages, angles, ratios, roundings, and everything that can be computed."""

from fractions import Fraction

from rewards.maths.equal import same_value, sign_of_infinity
from rewards.maths.evaluate import exact
from rewards.maths.rounding import same_up_to_rounding
from rewards.maths.syntax import Node, Number, Op, Symbol, contains, is_expression, is_op, rename, replaced, symbols

_PARAMETERS = frozenset("k n m l t c C s j r x K N".split())


def same_expressions(a: Node, g: Node) -> bool:
    if any(map(sign_of_infinity, (a, g))):
        return sign_of_infinity(a) == sign_of_infinity(g)
    if isinstance(a, Op) and isinstance(g, Op) and a.name == g.name == "ratio":
        return _same_ratio(a, g)
    if is_op(a, "percent") or is_op(g, "percent"):
        return _same_percentage(a, g)
    if is_op(a, "degree") or is_op(g, "degree"):
        return _same_angle(a, g)
    if same_value(a, g) or same_up_to_rounding(a, g):
        return True
    if (constants := _renamed_constants(a, g)) is not a:
        return same_value(constants, g)
    renamed = renamed_parameter(a, g)
    return renamed is not a and contains(g, "mul") and _mentions_period(g) and same_value(renamed, g)


def renamed_parameter(a: Node, g: Node) -> Node:
    """A free parameter may have another letter: (-32 + 3t, 64 - 5t) for (-32 + 3x, 64 - 5x)."""
    only_a, only_g = symbols(a) - symbols(g), symbols(g) - symbols(a)
    if len(only_a) == len(only_g) == 1 and only_a <= _PARAMETERS and only_g <= _PARAMETERS:
        return rename(a, {next(iter(only_a)): next(iter(only_g))})
    return a


def _renamed_constants(a: Node, g: Node) -> Node:
    """Constants of integration may be capitals or not: c_1 e^x for C_1 e^x."""
    only_a, only_g = symbols(a) - symbols(g), symbols(g) - symbols(a)
    if not only_a or {n.lower() for n in only_a} != {n.lower() for n in only_g} or len(only_a) != len(only_g):
        return a
    if not all(n.lower().startswith("c") for n in only_a):
        return a
    return rename(a, {old: next(new for new in only_g if new.lower() == old.lower()) for old in only_a})


def same_family(a: Node, g: Node) -> bool:
    """Whether two expressions in one whole number are the same set: pi/2 + k pi and -pi/2 + n pi."""
    names = symbols(a), symbols(g)
    if not (is_expression(a) and is_expression(g)) or any(len(n) != 1 for n in names):
        return False
    (old,), (new,) = names
    for step, shift in ((s, c) for s in (1, -1) for c in (0, 1, -1, 2, -2)):
        counter = Op("add", (Op("mul", (Number(Fraction(step)), Symbol(new))), Number(Fraction(shift))))
        if same_value(replaced(a, old, counter), g):
            return True
    return False


def _mentions_period(node: Node) -> bool:
    """Families such as pi/6 + k pi, whose k is only a counter."""
    return node == Symbol("pi") or (isinstance(node, Op) and any(map(_mentions_period, node.args)))


def _same_ratio(a: Op, g: Op) -> bool:
    if len(a.args) != len(g.args) or any(exact(part) == 0 for part in (*a.args, *g.args)):
        return False
    return all(
        same_value(Op("mul", (x, g.args[0])), Op("mul", (y, a.args[0])))
        for x, y in zip(a.args[1:], g.args[1:], strict=True)
    )


def _same_percentage(a: Node, g: Node) -> bool:
    """40% is 40% and 0.4. Where only one of them has the sign, it may be the unit of the question: 40 (percent)."""
    inner = [n.args[0] if is_op(n, "percent") else n for n in (a, g)]
    if is_op(a, "percent") and is_op(g, "percent"):
        return same_expressions(inner[0], inner[1])
    bare = exact(inner[1] if is_op(a, "percent") else inner[0])
    if (bare is None or abs(bare) > 1) and same_expressions(inner[0], inner[1]):
        return True
    if is_op(g, "percent"):
        return same_expressions(Op("mul", (a, Number(Fraction(100)))), inner[1])
    return same_expressions(Op("div", (inner[0], Number(Fraction(100)))), g)


def _same_angle(a: Node, g: Node) -> bool:
    """90 degrees are 90, and pi/2."""
    if is_op(a, "degree") and is_op(g, "degree"):
        return same_expressions(a.args[0], g.args[0])
    if _mentions_period(a) or _mentions_period(g):
        return same_value(a, g)
    inner = [n.args[0] if is_op(n, "degree") else n for n in (a, g)]
    return same_expressions(inner[0], inner[1])
