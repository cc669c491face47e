"""When a rounded number is right: only where the gold itself is rounded, or where nothing but floating point came between."""

import math
from fractions import Fraction

from rewards.maths.errors import UndecidedError
from rewards.maths.evaluate import exact
from rewards.maths.numeric import Evaluator
from rewards.maths.syntax import Node, Number, symbols

_NOISE = Fraction(1, 10**11)
_NOISE_DIGITS = 12


def same_up_to_rounding(a: Node, g: Node) -> bool:
    """Whether the answer rounds to a decimal gold, or is the gold but for floating-point noise.

    A gold of 0.458 takes 27/59; a gold of 1/3 does not take 0.333, for whoever can write 1/3 should. Two decimals of the
    same length differ if they differ. A gold of fewer than three digits is taken at its word.
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
    if isinstance(a, Number) and a.value.denominator == 1:
        return False  # a whole number is meant exactly
    if abs(value - g.value) <= unit / 2:
        return digits >= 2 or abs(value - g.value) <= unit / 20
    return digits >= 3 and Fraction(math.trunc(value / unit)) * unit == g.value  # cut off rather than rounded


def significant_digits(number: Number) -> int:
    """How many digits a decimal was written with, leading zeros not counted."""
    return len(str(abs(int(number.value * 10 ** (number.places or 0)))))


def _is_float(node: Node, value: Fraction) -> bool:
    """Whether a number can only come from floating point: many decimals, or a large power of two below the line."""
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
