"""The value of an expression: exact, modulo a prime, or to as many digits as asked. Everything is bounded.

None of this sees text, only the syntax tree.
"""

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rewards.maths.limits import UndecidedError, spend
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
    "fact2": _whole(lambda n: math.prod(range(n, 0, -2)) if n >= 0 else math.factorial(n), MAX_FACTORIAL),
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


# Numeric values, with mpmath.


MAX_MAGNITUDE = 200_000
"""No value goes beyond two to this power."""
MAX_GAMMA = 20_000
MAX_GAMMA_BITS = 800
"""The factorial of a fraction takes too long to more digits than this."""
BITS_OF_A_UNIT = 160
"""The precision at which evaluating a function costs 1 unit of the budget (`limits.MAX_WORK`)."""
GUARD = 30
"""Bits at the end of a number that are not relied on."""

Value = Any
"""A number of mpmath's, which has no types."""


@dataclass
class Span:
    """The magnitudes (powers of two) of everything met in an evaluation; zeros do not count."""

    low: int = 0
    high: int = 0


class Evaluator:
    """Evaluates expressions at a point with `bits` of precision.

    Attributes:
        span: the magnitudes met; a difference far below `span.low` can't be told from rounding.
        left_reals: whether something real became complex, as sqrt(x) does for a negative x.

    Raises:
        UndecidedError: from `value`, where there is no value or one beyond the bounds.
    """

    def __init__(self, point: Mapping[str, Fraction | complex], bits: int) -> None:
        self.mp = _context()
        self.bits = bits
        self.point = point
        self.span = Span()
        self.left_reals = False
        self.cost = (bits / BITS_OF_A_UNIT) ** 1.4

    def value(self, node: Node) -> Value:
        """The value as an mpmath number."""
        self.mp.prec = self.bits
        try:
            return self._value(node)
        except (ZeroDivisionError, ValueError, OverflowError, self.mp.NoConvergence) as error:
            raise UndecidedError(str(error)) from error

    def _value(self, node: Node) -> Value:
        if isinstance(node, Number):
            return self._seen(self._rational(node.value))
        if isinstance(node, Symbol):
            return self._seen(self._symbol(node.name))
        if not isinstance(node, Op):
            raise UndecidedError("no number")
        arguments = [self._value(argument) for argument in node.args]
        rule = NUMERIC.get(node.name)
        if rule is None or not arity_fits(node.name, len(arguments)):
            raise UndecidedError(node.name)
        self._spend(node.name, arguments)
        value = self._without_noise(rule(self, *arguments), node.name, arguments)
        if self.mp.im(value) and not any(map(self.mp.im, arguments)):
            self.left_reals = True
        return self._seen(value)

    def _spend(self, name: str, arguments: list[Value]) -> None:
        """Take the price of an operation off this thread's budget."""
        if name in _CHEAP:
            price = max(0.2, self.cost / 100)
        else:
            price = (
                self.cost
                * (5 if name in ("fact", "fact2", "binom") else 1)
                * (3 if any(map(self.mp.im, arguments)) else 1)
            )
        spend(price)

    def _rational(self, value: Fraction | complex) -> Value:
        if isinstance(value, complex):
            return self.mp.mpc(value)
        return self.mp.mpf(value.numerator) / value.denominator

    def _symbol(self, name: str) -> Value:
        if name in self.point:
            return self._rational(self.point[name])
        constant = {"pi": self.mp.pi, "e": self.mp.e, "i": self.mp.j}.get(name)
        if constant is None:
            raise UndecidedError(f"{name} has no value")
        return +constant

    def _without_noise(self, value: Value, name: str, arguments: list[Value]) -> Value:
        """Zero in the place of what can only be rounding error, in the real and the imaginary part.

        Products and powers are as exact as their factors; everything else may cancel, as 1 - 1 and sin(pi) do.
        """
        mp = self.mp
        if not mp.isfinite(value) or not value:
            return value
        largest = mp.mag(value)
        if name in _HAS_POLES and largest > self.bits - GUARD - max(mp.mag(v) for v in arguments if v):
            raise UndecidedError("a pole, but for rounding")
        if name not in _NEVER_CANCELS:
            largest = max(largest, *(mp.mag(v) for v in arguments if v and mp.isfinite(v)), -MAX_MAGNITUDE)
        floor = largest - self.bits + GUARD
        real, imaginary = mp.re(value), mp.im(value)
        if real and mp.mag(real) < floor:
            real = mp.zero
        if not imaginary:
            return real
        return mp.mpc(real, imaginary) if mp.mag(imaginary) >= floor else real

    def _seen(self, value: Value) -> Value:
        if not self.mp.isfinite(value):
            raise UndecidedError("not finite")
        if value:
            magnitude = int(self.mp.mag(value))
            if abs(magnitude) > MAX_MAGNITUDE:
                raise UndecidedError("beyond all bounds")
            self.span.high = max(self.span.high, magnitude)
            self.span.low = min(self.span.low, magnitude)
        return value

    def power(self, base: Value, exponent: Value) -> Value:
        if base == 0:
            if self.mp.re(exponent) > 0:
                return self.mp.zero
            raise UndecidedError("zero to a power that is not positive")
        # |exponent| * log2 |base|, before anything is computed
        if abs(exponent) * max(1, abs(self.mp.mag(base))) > MAX_MAGNITUDE:
            raise UndecidedError("beyond all bounds")
        if self.mp.im(base) == 0 and self.mp.re(base) < 0 and (root := self._odd_root(base, exponent)) is not None:
            return root
        return self.mp.power(base, exponent)

    def _odd_root(self, base: Value, exponent: Value) -> Value:
        """The cube root of -8 is -2: a real root where there is one."""
        if self.mp.im(exponent):
            return None
        for degree in (3, 5, 7):
            top = exponent * degree
            if self.mp.almosteq(top, self.mp.nint(top)) and not self.mp.isint(exponent):
                return -self.mp.power(-base, exponent) if int(self.mp.nint(top)) % 2 else self.mp.power(-base, exponent)
        return None

    def gamma(self, value: Value) -> Value:
        if abs(value) > MAX_GAMMA or (self.bits > MAX_GAMMA_BITS and not self.mp.isint(value)):
            raise UndecidedError("beyond all bounds")
        return self.mp.gamma(value)

    def double_factorial(self, value: Value) -> Value:
        """n (n - 2) (n - 4) ... down to 1 or 2; of whole numbers only."""
        if not self.mp.isint(value) or value < -1:
            raise UndecidedError("a double factorial of no whole number")
        half = self.mp.floor(self.mp.re(value) / 2)
        if value == 2 * half:
            return self.power(self.mp.mpf(2), half) * self.gamma(half + 1)
        return self.gamma(value + 1) / (self.power(self.mp.mpf(2), half) * self.gamma(half + 1))

    def log(self, value: Value, base: Value = None) -> Value:
        """The natural logarithm, unless a base is given."""
        if not value or base == 0:
            raise UndecidedError("logarithm of zero")
        return self.mp.log(value) if base is None else self.mp.log(value) / self.mp.log(base)

    def real(self, value: Value) -> Value:
        if self.mp.im(value):
            raise UndecidedError("a real number is needed")
        return self.mp.re(value)

    def bounded(self, value: Value) -> Value:
        """For functions that reduce their argument: no large one."""
        if value and self.mp.mag(value) > 4000:
            raise UndecidedError("beyond all bounds")
        return value


_of_thread = threading.local()


def _context() -> Any:
    """This thread's own mpmath context: making one takes longer than most evaluations."""
    if not hasattr(_of_thread, "mp"):
        from mpmath import MPContext

        _of_thread.mp = MPContext()
    return _of_thread.mp


def _named(name: str) -> Callable[..., Value]:
    """A function of mpmath's by its name there."""
    return lambda e, v: getattr(e.mp, name)(e.bounded(v))


def _saturated(name: str) -> Callable[..., Value]:
    """tanh and coth come within e^(-2 x) of 1: that is a magnitude met, or tanh 100 were 1 to so many digits."""

    def rule(e: Evaluator, v: Value) -> Value:
        e._seen(e.power(+e.mp.e, -2 * abs(e.mp.re(e.bounded(v)))))
        return getattr(e.mp, name)(v)

    return rule


_NEVER_CANCELS = frozenset("mul div ratio percent degree pow neg sqrt cbrt exp fact fact2 binom conj".split())
_CHEAP = frozenset("add mul neg div ratio percent degree sqrt abs floor ceil sign re im conj min max mod".split())
_HAS_POLES = frozenset({"tan", "cot", "sec", "csc"})
_CIRCULAR: dict[str, Callable[..., Value]] = {
    **{name: _named(name) for name in "sin cos tan cot sec csc sinh cosh".split()},
    **{name: _saturated(name) for name in ("tanh", "coth")},
    **{"arc" + name: _named("a" + name) for name in "sin cos tan cot sec csc sinh cosh tanh".split()},
}
NUMERIC: dict[str, Callable[..., Value]] = {
    **_CIRCULAR,
    "add": lambda e, *v: sum(v[1:], v[0]),
    "mul": lambda e, *v: math.prod(v[1:], start=v[0]),
    "neg": lambda e, v: -v,
    "div": lambda e, v, w: v / w,
    "ratio": lambda e, v, w: v / w,
    "percent": lambda e, v: v / 100,
    "degree": lambda e, v: v * e.mp.pi / 180,
    "pow": lambda e, v, w: e.power(v, w),
    "sqrt": lambda e, v: e.mp.sqrt(v),
    "cbrt": lambda e, v: e.power(v, e.mp.mpf(1) / 3),
    "exp": lambda e, v: e.power(+e.mp.e, v),
    "cis": lambda e, v: e.power(+e.mp.e, e.mp.j * v),
    "log": lambda e, v, *b: e.log(v, *b),
    "ln": lambda e, v: e.log(v),
    "lg": lambda e, v: e.log(v, e.mp.mpf(10)),
    "abs": lambda e, v: abs(v),
    "floor": lambda e, v: e.mp.floor(e.bounded(e.real(v))),
    "ceil": lambda e, v: e.mp.ceil(e.bounded(e.real(v))),
    "sign": lambda e, v: e.mp.sign(e.real(v)),
    "re": lambda e, v: e.mp.re(v),
    "im": lambda e, v: e.mp.im(v),
    "arg": lambda e, v: e.mp.arg(v),
    "conj": lambda e, v: e.mp.conj(v),
    "fact": lambda e, v: e.gamma(v + 1),
    "fact2": lambda e, v: e.double_factorial(v),
    "binom": lambda e, v, w: e.gamma(v + 1) / (e.gamma(w + 1) * e.gamma(v - w + 1)),
    "min": lambda e, *v: min(map(e.real, v)),
    "max": lambda e, *v: max(map(e.real, v)),
    "mod": lambda e, v, w: e.mp.fmod(e.real(v), e.real(w)),
}
