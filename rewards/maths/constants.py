r"""Constants that nothing fixes: C of an antiderivative, C_1 and C_2 of a general solution. Their letters are free."""

import re
from fractions import Fraction
from itertools import permutations

from rewards.maths.evaluate import exact
from rewards.maths.limits import spend
from rewards.maths.syntax import Node, Number, Op, Symbol, contains, is_op, rename, replaced, symbols
from rewards.maths.zero_testing import same_value

MAX_CONSTANTS = 4
_CONSTANT = re.compile(r"[CcKk](?:_\{?\w\}?)?|[A-D](?:_\{?\w\}?)?|const")
_TYPICAL = re.compile(r"[CcKk](?:_\{?\w\}?)?|[A-D]_\{?\w\}?|const")
_BASE = Fraction(7, 5)
MAX_BASE = 10**6


def same_up_to_constants(a: Node, g: Node) -> bool:
    """True where two expressions are equal but for the names of their constants, or are antiderivatives of one function."""
    return _same_renamed(a, g) or _same_antiderivative(a, g)


def _same_renamed(a: Node, g: Node) -> bool:
    """A e^x + B e^{-x} for C_1 e^x + C_2 e^{-x}. A single A in the gold may be an area."""
    only_a, only_g = sorted(symbols(a) - symbols(g)), sorted(symbols(g) - symbols(a))
    if not symbols(a) & symbols(g):
        return False  # no constants of anything
    if not 0 < len(only_a) == len(only_g) <= MAX_CONSTANTS or not all(map(_CONSTANT.fullmatch, only_a + only_g)):
        return False
    if not all(map(_TYPICAL.fullmatch, only_g)) and (len(only_g) < 2 or not all(map(_TYPICAL.fullmatch, only_a))):
        return False
    return any(same_value(rename(a, dict(zip(only_a, order, strict=True))), g) for order in permutations(only_g))


def _same_antiderivative(a: Node, g: Node) -> bool:
    """F(x) + C and G(x) + C', where F - G is a number. (a + b + C is not a - b + C: what other letters are is not free.)"""
    constants = _added_constant(a), _added_constant(g)
    if not all(constants):
        return False
    left, right = (replaced(n, c, Number(Fraction(0))) for n, c in zip((a, g), constants, strict=True) if c)
    difference: Node = Op("add", (left, Op("neg", (right,))))
    at_base = difference
    for name in sorted(names := symbols(left) | symbols(right)):
        at_base = replaced(at_base, name, Number(_BASE))
    return bool(names) and same_value(difference, at_base)


def _added_constant(node: Node) -> str:
    """The C of "... + C", where it is nowhere else; "" without one."""
    if not is_op(node, "add"):
        return ""
    names = [t.name for t in node.args if isinstance(t, Symbol) and _CONSTANT.fullmatch(t.name)]
    if len(names) != 1 or any(names[0] in symbols(t) for t in node.args if t != Symbol(names[0])):
        return ""
    return names[0]


def same_powers(a: Node, g: Node) -> bool:
    """True for products of powers of whole numbers, however large, that have the same prime factors: 4^{50000} and 2^{100000}."""
    if not (contains(a, "pow") or contains(g, "pow")):
        return False  # numbers that can be compared as such
    factors = _prime_powers(a), _prime_powers(g)
    return factors[0] is not None and factors[0] == factors[1]


def _prime_powers(node: Node) -> dict[int, Fraction] | None:
    """The exponents of the primes in a product of powers; None for anything else."""
    if isinstance(node, Number):
        return _factored(node.value)
    if is_op(node, "mul") or is_op(node, "div"):
        parts = [_prime_powers(part) for part in node.args]
        signs = [1] * len(parts) if node.name == "mul" else [1, -1]
        return _added(parts, [Fraction(s) for s in signs])
    if is_op(node, "pow"):
        exponent = exact(node.args[1])
        return None if exponent is None else _added([_prime_powers(node.args[0])], [exponent])
    return None


def _added(parts: list[dict[int, Fraction] | None], times: list[Fraction]) -> dict[int, Fraction] | None:
    total: dict[int, Fraction] = {}
    for part, factor in zip(parts, times, strict=True):
        if part is None:
            return None
        for prime, power in part.items():
            total[prime] = total.get(prime, Fraction(0)) + factor * power
    return {prime: power for prime, power in total.items() if power}


def _factored(value: Fraction) -> dict[int, Fraction] | None:
    """The prime factors of a small positive fraction."""
    if not 0 < value.numerator <= MAX_BASE or value.denominator > MAX_BASE:
        return None
    spend(100)
    found: dict[int, Fraction] = {}
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        prime = 2
        while prime * prime <= number:
            while number % prime == 0:
                found[prime] = found.get(prime, Fraction(0)) + sign
                number //= prime
            prime += 1
        if number > 1:
            found[number] = found.get(number, Fraction(0)) + sign
    return found
