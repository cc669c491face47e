"""Whether two values are the same: percentages, angles, ratios, roundings, and everything that can be computed."""

from fractions import Fraction

from rewards.maths.equal import same_value, sign_of_infinity
from rewards.maths.evaluate import exact
from rewards.maths.rounding import same_up_to_rounding
from rewards.maths.syntax import Node, Number, Op, Symbol, contains, rename, symbols

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
    renamed = renamed_parameter(a, g)
    return renamed is not a and contains(g, "mul") and _mentions_period(g) and same_value(renamed, g)


def renamed_parameter(a: Node, g: Node) -> Node:
    """A free parameter may have another letter: (-32 + 3t, 64 - 5t) for (-32 + 3x, 64 - 5x)."""
    only_a, only_g = symbols(a) - symbols(g), symbols(g) - symbols(a)
    if len(only_a) == len(only_g) == 1 and only_a <= _PARAMETERS and only_g <= _PARAMETERS:
        return rename(a, {next(iter(only_a)): next(iter(only_g))})
    return a


def _mentions_period(node: Node) -> bool:
    """Families such as pi/6 + k pi, whose k is only a counter."""
    return node == Symbol("pi") or (isinstance(node, Op) and any(map(_mentions_period, node.args)))


def is_op(node: Node, name: str) -> bool:
    return isinstance(node, Op) and node.name == name


def _same_ratio(a: Op, g: Op) -> bool:
    if len(a.args) != len(g.args) or any(exact(part) == 0 for part in (*a.args, *g.args)):
        return False
    return all(
        same_value(Op("mul", (x, g.args[0])), Op("mul", (y, a.args[0])))
        for x, y in zip(a.args[1:], g.args[1:], strict=True)
    )


def _same_percentage(a: Node, g: Node) -> bool:
    """40% is 40% and 0.4. Where only one of them has the sign, it may be the unit of the question: 40 (percent)."""
    inner = [n.args[0] if is_op(n, "percent") else n for n in (a, g)]  # type: ignore[union-attr]
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
        return same_expressions(a.args[0], g.args[0])  # type: ignore[union-attr]
    if _mentions_period(a) or _mentions_period(g):
        return same_value(a, g)
    inner = [n.args[0] if is_op(n, "degree") else n for n in (a, g)]  # type: ignore[union-attr]
    return same_expressions(inner[0], inner[1])
