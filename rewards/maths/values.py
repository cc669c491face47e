"""Are two values the same, as answers? Percentages, angles, ratios, parameters, and rounding.

A rounded number is right only where the gold itself is rounded, or differs by no more than floating-point error.
"""

import math
from fractions import Fraction

from rewards.maths.constants import same_powers, same_up_to_constants
from rewards.maths.evaluate import Evaluator, exact
from rewards.maths.limits import UndecidedError
from rewards.maths.syntax import Node, Number, Op, Symbol, contains, is_op, rename, symbols
from rewards.maths.zero_testing import same_value, sign_of_infinity

_PARAMETERS = frozenset("k n m l t c C s j r x K N".split())


def same_expressions(a: Node, g: Node) -> bool:
    """True where expression `a` is an answer to the gold `g`: equal, or equal as a percentage, angle, ratio or rounded."""
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
    if same_powers(a, g) or same_up_to_constants(a, g):
        return True
    renamed = renamed_parameter(a, g)
    return renamed is not a and contains(g, "mul") and mentions_period(g) and same_value(renamed, g)


def renamed_parameter(a: Node, g: Node) -> Node:
    """A free parameter may have another letter: (-32 + 3t, 64 - 5t) for (-32 + 3x, 64 - 5x)."""
    only_a, only_g = symbols(a) - symbols(g), symbols(g) - symbols(a)
    if len(only_a) == len(only_g) == 1 and only_a <= _PARAMETERS and only_g <= _PARAMETERS:
        return rename(a, {next(iter(only_a)): next(iter(only_g))})
    return a


def mentions_period(node: Node) -> bool:
    """Families such as pi/6 + k pi, whose k is only a counter."""
    return node == Symbol("pi") or (isinstance(node, Op) and any(map(mentions_period, node.args)))


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
    if mentions_period(a) or mentions_period(g):
        return same_value(a, g)
    inner = [n.args[0] if is_op(n, "degree") else n for n in (a, g)]
    return same_expressions(inner[0], inner[1])


# Rounding.


_NOISE = Fraction(1, 10**11)
_NOISE_DIGITS = 12


def same_up_to_rounding(a: Node, g: Node) -> bool:
    """True where the answer rounds to a decimal gold, or differs from the gold by floating-point error only.

    A gold of 0.458 accepts 27/59. A gold of 1/3 does not accept 0.333: it can be written exactly. Two decimals of the
    same length differ if they differ. A gold of fewer than three digits or two decimals is taken literally, and so is one whose digits
    the answer nearly has: 12.5 is not 12.55, however that is written.
    """
    if symbols(a) or symbols(g):
        return False
    value, target = approximate(a), approximate(g)
    if value is None or target is None:
        return False
    if isinstance(g, Number) and g.places is not None and _rounds_to(a, value, g):
        return True
    # A whole number is meant exactly, however many nines there are.
    return target.denominator != 1 and _is_float(a, value) and abs(value - target) <= _NOISE * abs(target)


def _rounds_to(a: Node, value: Fraction, g: Number) -> bool:
    places = g.places or 0
    digits = significant_digits(g)
    unit = Fraction(1, 10**places)
    if isinstance(a, Number) and a.places is not None:
        # A decimal answer with more digits than the gold.
        return a.places > places and digits >= 4 and abs(value - g.value) <= unit / 2
    if digits < MIN_ROUNDED_DIGITS or places < 2 or (value * 10 ** (places + MIN_DIGITS_LOST - 1)).denominator == 1:
        return False  # both are meant exactly
    return abs(value - g.value) <= unit / 2 or Fraction(math.trunc(value / unit)) * unit == g.value  # or cut off


MIN_ROUNDED_DIGITS = 3
"""A gold of fewer digits, or of a single decimal, is taken literally: 2.5 is five halves, 10.0 is ten."""
MIN_DIGITS_LOST = 3
"""A number that needs fewer digits more than the gold has would have been written out."""


def significant_digits(number: Number) -> int:
    """The number of digits that a decimal was written with, without leading zeros."""
    return len(str(abs(int(number.value * 10 ** (number.places or 0)))))


def _is_float(node: Node, value: Fraction) -> bool:
    """True for a number that can only come from floating point: many decimals, or a large power of two as denominator."""
    if not isinstance(node, Number):
        return False
    if node.places is not None:
        return significant_digits(node) >= _NOISE_DIGITS
    bottom = value.denominator
    return bottom > 2**30 and bottom & (bottom - 1) == 0


def approximate(node: Node) -> Fraction | None:
    """The real value of an expression to 40 digits; None if it has none."""
    value = exact(node)
    if value is not None:
        return value
    try:
        evaluator = Evaluator({}, 160)
        number = evaluator.real(evaluator.value(node))
    except UndecidedError:
        return None
    if abs(int(evaluator.mp.mag(number or 1))) > 300:
        return None
    mantissa, exponent = evaluator.mp.frexp(number)
    return Fraction(int(mantissa * 2**150), 2**150) * Fraction(2) ** int(exponent)
