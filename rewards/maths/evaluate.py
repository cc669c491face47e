"""What an expression is worth, exactly or modulo a prime. Everything is bounded.

None of this sees text: only the syntax tree.
"""

import math
from collections.abc import Callable, Mapping
from fractions import Fraction

from rewards.maths.errors import UndecidedError
from rewards.maths.syntax import Node, Number, Op, Symbol

PRIME = (1 << 61) - 1
MAX_BITS = 40_000
"""No exact number grows beyond this."""
MAX_FACTORIAL = 3000


def exact(node: Node) -> Fraction | None:
    """The rational value of an expression without variables; None if it has none, or one that is too large."""
    if isinstance(node, Number):
        return node.value
    if not isinstance(node, Op):
        return None
    parts = []
    for argument in node.args:
        part = exact(argument)
        if part is None:
            return None
        parts.append(part)
    rule = _EXACT.get(node.name)
    value = rule(*parts) if rule is not None and arity_fits(node.name, len(parts)) else None
    if value is None or max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        return None
    return value


def arity_fits(name: str, count: int) -> bool:
    if name in ("add", "mul", "gcd", "lcm", "min", "max"):
        return count >= 2
    return count == _ARITY.get(name, 1) or (name == "log" and count == 2)


_ARITY = {"div": 2, "pow": 2, "binom": 2, "mod": 2, "ratio": 2}


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        return (
            _exact_root(base**exponent.numerator, exponent.denominator)
            if abs(exponent.numerator) < 8 and (base > 0)
            else None
        )
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if size * abs(exponent.numerator) > MAX_BITS or (base == 0 and exponent <= 0):
        return None
    return base**exponent.numerator


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    """The root if it is rational."""
    if value < 0 or degree > 64:
        return None
    roots = [_integer_root(part, degree) for part in (value.numerator, value.denominator)]
    return None if None in roots else Fraction(*roots)  # type: ignore[arg-type]


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
    else:
        root = 1 << (-(-value.bit_length() // degree))  # Newton's method from above
        while True:
            smaller = ((degree - 1) * root + value // root ** (degree - 1)) // degree if root else 0
            if smaller >= root:
                break
            root = smaller
    return root if root**degree == value else None


def _whole(function: Callable[..., int], limit: int) -> Callable[..., Fraction | None]:
    def rule(*values: Fraction) -> Fraction | None:
        if any(v.denominator != 1 or abs(v) > limit for v in values):
            return None
        try:
            return Fraction(function(*(v.numerator for v in values)))
        except ValueError:
            return None

    return rule


def _modulo(value: Fraction, modulus: Fraction) -> Fraction | None:
    return value % modulus if modulus > 0 else None


_EXACT: dict[str, Callable[..., Fraction | None]] = {
    "add": lambda *p: sum(p, Fraction(0)),
    "mul": lambda *p: math.prod(p, start=Fraction(1)),
    "neg": lambda p: -p,
    "div": lambda p, q: p / q if q else None,
    "ratio": lambda p, q: p / q if q else None,
    "percent": lambda p: p / 100,
    "pow": _exact_power,
    "sqrt": lambda p: _exact_root(p, 2),
    "abs": abs,
    "floor": lambda p: Fraction(math.floor(p)),
    "ceil": lambda p: Fraction(math.ceil(p)),
    "sign": lambda p: Fraction((p > 0) - (p < 0)),
    "fact": _whole(math.factorial, MAX_FACTORIAL),
    "binom": _whole(math.comb, MAX_FACTORIAL),
    "gcd": _whole(math.gcd, 10**30),
    "lcm": _whole(math.lcm, 10**30),
    "min": lambda *p: min(p),
    "max": lambda *p: max(p),
    "mod": _modulo,
}


def residue(node: Node, point: Mapping[str, int]) -> int:
    """A rational expression's value modulo `PRIME` at a point. e and pi count as variables here.

    Two rational functions that agree at a random point are equal but for a chance of about degree / 2^61
    (Schwartz 1980, Zippel 1979).

    Raises:
        UndecidedError: the expression is not rational, or divides by zero.
    """
    if isinstance(node, Number):
        return node.value.numerator * _inverse(node.value.denominator) % PRIME
    if isinstance(node, Symbol) and node.name in point:
        return point[node.name]
    if not isinstance(node, Op):
        raise UndecidedError("no number")
    if node.name == "pow":
        return _residue_power(node, point)
    rule = _RESIDUE.get(node.name)
    if rule is None or not arity_fits(node.name, len(node.args)):
        raise UndecidedError(node.name)
    return rule(*(residue(argument, point) for argument in node.args)) % PRIME


def _residue_power(node: Op, point: Mapping[str, int]) -> int:
    exponent = exact(node.args[1])
    if exponent is None or exponent.denominator != 1 or abs(exponent) > 10_000:
        raise UndecidedError("no integer exponent")
    base = residue(node.args[0], point)
    if base == 0 and exponent == 0:
        raise UndecidedError("0^0")
    if exponent < 0:
        base = _inverse(base)
    return pow(base, abs(exponent.numerator), PRIME)


def _inverse(value: int) -> int:
    if value % PRIME == 0:
        raise UndecidedError("division by zero")
    return pow(value, -1, PRIME)


_RESIDUE: dict[str, Callable[..., int]] = {
    "add": lambda *p: sum(p),
    "mul": lambda *p: math.prod(p),
    "neg": lambda p: -p,
    "div": lambda p, q: p * _inverse(q),
    "ratio": lambda p, q: p * _inverse(q),
    "percent": lambda p: p * _inverse(100),
}
