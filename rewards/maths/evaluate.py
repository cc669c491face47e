"""The value of an expression: exact, modulo a prime, or to as many digits as asked. Everything is bounded.

None of this sees text, only the syntax tree.
"""

import math
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from rewards.maths.limits import MAX_BITS, UndecidedError, size, spend, spend_on_bits
from rewards.maths.syntax import Node, Number, Op, Symbol


def _is_prime(n: int) -> bool:
    """For odd n below 3.3e24: Miller's test with the first thirteen primes as bases (Sorenson, Webster 2015)."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(
        pow(base, odd, n) == 1 or any(pow(base, odd << k, n) == n - 1 for k in range(twos))
        for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
    )


def _random_prime() -> int:
    """A prime of 61 bits that nobody can know: x + px is x to a known p, and x^(p-1) is 1."""
    while True:
        candidate = secrets.randbits(60) | 1 << 60 | 1
        if _is_prime(candidate):
            return candidate


PRIME = _random_prime()
"""The modulus of `residue`, another one in each process."""
MAX_RESIDUE_POWER = 1_000_000
"""Of this degree two functions that differ are still told apart, but for a chance of 1e-12."""


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
        spend_on_bits(size(part))
        parts.append(part)
    rule = _EXACT.get(node.name)
    value = rule(*parts) if rule is not None and arity_fits(node.name, len(parts)) else None
    return value if value is not None and size(value) <= MAX_BITS else None


def arity_fits(name: str, count: int) -> bool:
    if name in ("add", "mul", "gcd", "lcm", "min", "max"):
        return count >= 2
    return count == _ARITY.get(name, 1) or (name == "log" and count == 2)


_ARITY = {"div": 2, "pow": 2, "binom": 2, "mod": 2, "ratio": 2}


# Rules for rational values. Those whose value may be longer than what they are given ask `_grows_to` before they compute it.


def _grows_to(bits: int) -> bool:
    """True for a length that may be computed; its price is paid then. Reducing may still halve it."""
    if bits > 2 * MAX_BITS:
        return False
    spend_on_bits(bits)
    return True


def _sum(*parts: Fraction) -> Fraction | None:
    total = Fraction(0)
    for part in parts:
        if total.denominator == part.denominator:
            bits = max(size(total), size(part)) + 1
        else:
            bits = size(total) + size(part) + 1
        if not _grows_to(bits):
            return None
        total += part
    return total


def _product(*parts: Fraction) -> Fraction | None:
    total = Fraction(1)
    for part in parts:
        if not _grows_to(size(total) + size(part)):
            return None
        total *= part
    return total


def _quotient(top: Fraction, bottom: Fraction) -> Fraction | None:
    return _product(top, 1 / bottom) if bottom else None


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    power, degree = exponent.numerator, exponent.denominator
    if not _grows_to(size(base) * abs(power)) or (base == 0 and exponent <= 0):
        return None
    if degree == 1:
        return base**power
    return _exact_root(base**power, degree) if abs(power) < 8 and base > 0 else None


def _exact_root(value: Fraction, degree: int) -> Fraction | None:
    """The root if it is rational."""
    if value < 0 or degree > 64:
        return None
    roots = [_integer_root(part, degree) for part in (value.numerator, value.denominator)]
    return None if None in roots else Fraction(*roots)  # type: ignore[arg-type]


def _integer_root(value: int, degree: int) -> int | None:
    spend_on_bits(value.bit_length())
    if degree == 2:
        root = math.isqrt(value)
    else:
        root = 1 << (-(-value.bit_length() // degree))  # Newton's method from above
        while True:
            spend_on_bits(value.bit_length())
            smaller = ((degree - 1) * root + value // root ** (degree - 1)) // degree if root else 0
            if smaller >= root:
                break
            root = smaller
    return root if root**degree == value else None


def _whole(function: Callable[..., int | None]) -> Callable[..., Fraction | None]:
    """A rule for whole numbers only."""

    def rule(*values: Fraction) -> Fraction | None:
        value = function(*(v.numerator for v in values)) if all(v.denominator == 1 for v in values) else None
        return None if value is None else Fraction(value)

    return rule


def _factorial(n: int) -> int | None:
    # n! is less than n^n, and more than (n/e)^n: a length of n (log2 n - 1.44) bits, and a little
    if not 0 <= n <= MAX_BITS or not _grows_to(int(n * max(0.0, math.log2(n or 1) - 1.44)) + n.bit_length()):
        return None
    return math.factorial(n)


def _double_factorial(n: int) -> int | None:
    """n (n - 2) (n - 4) ...: about the root of n!."""
    if not 0 <= n <= MAX_BITS or not _grows_to(int(n * max(0.0, math.log2(n or 1) - 1.44) / 2) + n.bit_length()):
        return None
    return math.prod(range(n, 0, -2))


def _binomial(n: int, k: int) -> int | None:
    if n < 0 or k < 0:
        return None
    least = min(k, n - k)
    # (n choose k) is less than (e n / k)^k
    if least > 0 and (least > MAX_BITS or not _grows_to(least * (n.bit_length() - least.bit_length() + 3))):
        return None
    return math.comb(n, k)


def _least_multiple(*values: int) -> int | None:
    return math.lcm(*values) if _grows_to(sum(v.bit_length() for v in values)) else None


def _modulo(value: Fraction, modulus: Fraction) -> Fraction | None:
    return value % modulus if modulus > 0 and _grows_to(size(value) + size(modulus)) else None


_EXACT: dict[str, Callable[..., Fraction | None]] = {
    "add": _sum,
    "mul": _product,
    "neg": lambda p: -p,
    "div": _quotient,
    "ratio": _quotient,
    "percent": lambda p: p / 100,
    "pow": _exact_power,
    "sqrt": lambda p: _exact_root(p, 2),
    "abs": abs,
    "floor": lambda p: Fraction(math.floor(p)),
    "ceil": lambda p: Fraction(math.ceil(p)),
    "sign": lambda p: Fraction((p > 0) - (p < 0)),
    "fact": _whole(_factorial),
    "fact2": _whole(_double_factorial),
    "binom": _whole(_binomial),
    "gcd": _whole(math.gcd),
    "lcm": _whole(_least_multiple),
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
        if node.value.denominator == 1:
            return node.value.numerator % PRIME
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
    spend(3 * len(node.args))
    return rule(*(residue(argument, point) for argument in node.args)) % PRIME


def _residue_power(node: Op, point: Mapping[str, int]) -> int:
    exponent = exact(node.args[1])
    if exponent is None or exponent.denominator != 1 or abs(exponent) > MAX_RESIDUE_POWER:
        raise UndecidedError("no integer exponent")
    spend(10)
    base = residue(node.args[0], point)
    if base == 0 and exponent == 0:
        raise UndecidedError("0^0")
    if exponent < 0:
        base = _inverse(base)
    return pow(base, abs(exponent.numerator), PRIME)


def _inverse(value: int) -> int:
    spend(5)
    if value % PRIME == 0:
        raise UndecidedError("division by zero")
    return pow(value, -1, PRIME)


def _residue_product(*parts: int) -> int:
    product = 1
    for part in parts:
        product = product * part % PRIME
    return product


_RESIDUE: dict[str, Callable[..., int]] = {
    "add": lambda *p: sum(p),
    "mul": _residue_product,
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
STEPS_OF_A_FUNCTION, BITS_OF_A_FUNCTION = 20, 160
"""What evaluating a function to that many bits costs of the budget."""
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
        self.steps = STEPS_OF_A_FUNCTION * (bits / BITS_OF_A_FUNCTION) ** 1.4

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
        """Pay for an operation."""
        if name in _CHEAP:
            spend(2 * len(arguments) + self.steps / 50)
        else:
            spend(
                self.steps
                * (5 if name in ("fact", "fact2", "binom") else 1)
                * (3 if any(map(self.mp.im, arguments)) else 1)
            )

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
