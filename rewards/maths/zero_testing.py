"""Zero testing: do two expressions have the same value? Exact where they are rational, else numeric to many digits.

The number of digits follows from the magnitudes that the evaluation meets, so that 1/2004! and 1/2006!, or 1 and
cos(10^-300), are told apart: a difference counts as zero only far below what the sizes of the expressions explain.

Expressions with variables are compared at points. These depend on both expressions, so that no expression can be written
to be right at known points.
"""

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import islice, product

from rewards.maths.evaluate import PRIME, Evaluator, exact, residue
from rewards.maths.limits import UndecidedError
from rewards.maths.syntax import Node, Number, Op, Symbol, children, contains, symbols

BITS = 160
MAX_WORKING_BITS = 12_000
POINTS = 3
WHOLE_POINTS = 7
_WHOLE_NUMBER_NAMES = frozenset("n k m j l r".split())
_PIECEWISE = ("abs", "floor", "ceil", "min", "max", "sign", "mod")
_ON_WHOLE_NUMBERS = ("sin", "cos", "tan", "pow", "fact", "fact2", "floor", "ceil", "mod")
_COMPLEX = ("conj", "re", "im", "arg")


def same_value(a: Node, b: Node) -> bool:
    """True where two expressions are equal: for positive variables, and for negative ones where both are real.

    log is the natural logarithm or that to base 10, whichever makes them equal. Expressions that can't be evaluated are
    equal only if they are written alike.
    """
    if _same(a, b):
        return True
    if not (contains(a, "log") or contains(b, "log")):
        return False
    decimal = _with_decimal_logarithms(a), _with_decimal_logarithms(b)
    return decimal != (a, b) and _same(*decimal)


def _same(a: Node, b: Node) -> bool:
    if a == b:
        return True
    exacts = exact(a), exact(b)
    if exacts[0] is not None and exacts[1] is not None:
        return exacts[0] == exacts[1]
    rational = _same_rational(a, b)
    if rational is not None:
        return rational
    names = sorted(symbols(a) | symbols(b))
    if _agree(a, b, positive_points(names, a, b), 1 if not names else POINTS):
        return not names or not _differ_elsewhere(a, b, names)
    return _over_whole_numbers(names, a, b) and _agree(a, b, whole_points(names, a, b), WHOLE_POINTS)


def _same_rational(a: Node, b: Node) -> bool | None:
    """Equal as rational functions; None if they are none, or if e or pi might make a difference."""
    names = symbols(a) | symbols(b)
    generator = generator_of(a, b)
    constants = {"pi", "e"}
    try:
        for _ in range(2):
            point = {name: generator.randrange(1, PRIME) for name in sorted(names | constants)}
            if residue(a, point) != residue(b, point):
                return False
    except UndecidedError:
        return None
    return True


def _agree(a: Node, b: Node, points: Iterable[Mapping[str, Fraction]], needed: int) -> bool:
    """True where the two agree at as many points as needed.

    Where a real expression turns complex, as arcsin(2) does, branches may differ: such points count only if there are
    too few others.
    """
    agreed, outside = 0, []
    for point in points:
        try:
            same, real = _agree_at(a, b, point)
        except UndecidedError:
            continue  # no value here: another point
        if not real and point:
            outside.append(same)
            continue
        if not same:
            return False
        agreed += 1
        if agreed == needed:
            return True
    return len(outside) >= needed and all(outside)


def _agree_at(a: Node, b: Node, point: Mapping[str, Fraction | complex]) -> tuple[bool, bool]:
    """Two flags: the two agree at a point, and both stayed real on the way."""
    bits = BITS
    while True:
        evaluator = Evaluator(point, bits)
        difference = evaluator.value(a) - evaluator.value(b)
        span = evaluator.span
        needed = BITS + 2 * (span.high - span.low)
        if needed > MAX_WORKING_BITS:
            raise UndecidedError("too many digits needed")
        if needed <= bits:
            same = not difference or int(evaluator.mp.mag(difference)) < span.high - bits + 40
            return same, not evaluator.left_reals
        bits = needed


def _differ_elsewhere(a: Node, b: Node, names: list[str]) -> bool:
    """True where expressions that agree at a few positive points differ at others, both real: |x| and x for negative x,
    |x - 100| and 100 - x beyond 100, z and its conjugate off the real line. (ln x^2 and 2 ln x don't.)"""
    points: list[Mapping[str, Fraction | complex]] = list(all_signs(next(positive_points(names, b, a)), a, b))
    if contains(a, *_PIECEWISE) or contains(b, *_PIECEWISE):
        points += near_breaks(names, a, b)
    if contains(a, *_COMPLEX) or contains(b, *_COMPLEX):
        points += complex_points(names)
    for point in points:
        try:
            same, real = _agree_at(a, b, point)
        except UndecidedError:
            continue
        if real and not same:
            return True
    return False


def _over_whole_numbers(names: list[str], a: Node, b: Node) -> bool:
    """True where the variables are named like whole numbers, in an identity that may hold only there: cos(n pi) = (-1)^n."""
    fits = contains(a, *_ON_WHOLE_NUMBERS) or contains(b, *_ON_WHOLE_NUMBERS)
    return 0 < len(names) and set(names) <= _WHOLE_NUMBER_NAMES and fits


def _with_decimal_logarithms(node: Node) -> Node:
    if not isinstance(node, Op):
        return node
    name = "lg" if node.name == "log" and len(node.args) == 1 else node.name
    return Op(name, tuple(map(_with_decimal_logarithms, node.args)))


def sign_of_infinity(node: Node) -> int:
    """1 for infinity, -1 for minus infinity, 0 for anything else."""
    match node:
        case Symbol("oo"):
            return 1
        case Op("neg", (Symbol("oo"),)):
            return -1
        case Op("add", (Number(), Symbol("oo"))):
            return 1
    return 0


# The points.


ATTEMPTS = 8
MAX_SIGNED_NAMES = 4
MAX_BREAKS = 6
_SCALES = (Fraction(1, 1000), Fraction(1, 3), Fraction(30), Fraction(1000), Fraction(10**6))


def generator_of(a: Node, b: Node) -> random.Random:
    """The same random numbers for the same two expressions."""
    text = f"{_fingerprint(a)};{_fingerprint(b)}"
    return random.Random(hashlib.blake2b(text.encode(errors="replace"), digest_size=16).digest())


def _fingerprint(node: Node) -> str:
    """An expression as text; in hexadecimal, because Python writes no decimals of more than 4300 digits."""
    match node:
        case Number(value):
            return f"{value.numerator:x}/{value.denominator:x}"
        case Symbol(name):
            return name
        case Op(name, _):
            return f"{name}({','.join(map(_fingerprint, children(node)))})"
    return type(node).__name__


def positive_points(names: list[str], a: Node, b: Node) -> Iterator[dict[str, Fraction]]:
    """Near 1 on either side, and farther out: some functions live below 1, some above. One empty point without names."""
    if not names:
        yield {}
        return
    generator = generator_of(a, b)
    for attempt in range(ATTEMPTS):
        low, high = ((2, 9), (11, 38))[attempt % 2]
        yield {name: Fraction(generator.randrange(low * 10**6, high * 10**6), 10**7) for name in names}


def whole_points(names: list[str], a: Node, b: Node) -> Iterator[dict[str, Fraction]]:
    """Whole numbers, most of them large, none of them known before both expressions are: whoever writes a polynomial through
    1, 2, 4 and 8 gains nothing. Odd and even ones, and names in both orders (n above k has binomials, below has none)."""
    generator = generator_of(a, b)
    for attempt in range(2 * WHOLE_POINTS + 2):
        low, high = ((9, 30), (31, 60), (2, 9))[attempt % 3]
        drawn = sorted(2 * generator.randrange(low, high) + (attempt + place) % 2 for place in range(len(names)))
        values = drawn if attempt % 4 < 2 else drawn[::-1]
        yield {name: Fraction(value) for name, value in zip(names, values, strict=True)}


def all_signs(point: Mapping[str, Fraction], a: Node, b: Node) -> Iterator[dict[str, Fraction]]:
    """A positive point in every other quadrant; with many names, in a few of them."""
    names = list(point)
    if len(names) <= MAX_SIGNED_NAMES:
        signs = list(product((-1, 1), repeat=len(names)))[:-1]
    else:
        generator = generator_of(b, a)
        signs = [(-1,) * len(names), *(tuple(generator.choice((-1, 1)) for _ in names) for _ in range(8))]
    for choice in signs:
        yield {name: sign * point[name] for name, sign in zip(names, choice, strict=True)}


def near_breaks(names: list[str], a: Node, b: Node) -> list[Mapping[str, Fraction | complex]]:
    """Whole numbers, numbers of all sizes, and both sides of the constants in the expressions: |x - 100|, max(x, 7)."""
    breaks = islice(dict.fromkeys(abs(n) for n in (*_constants(a), *_constants(b)) if abs(n) > 1), MAX_BREAKS)
    sizes: list[Fraction | int] = [
        *_SCALES,
        1,
        2,
        5,
        *(c * f for c in breaks for f in (Fraction(7, 8), Fraction(9, 8), 1)),
    ]
    values = [sign * Fraction(size) for size in sizes for sign in (1, -1)]
    generator = generator_of(a, b)
    return [
        {name: v * (1 if place == 0 else generator.choice((1, -1, 2))) for place, name in enumerate(names)}
        for v in values
    ]


def complex_points(names: list[str]) -> list[Mapping[str, Fraction | complex]]:
    """Off the real line."""
    return [{name: complex(1 + place, 2 - 5 * place) for place, name in enumerate(names)}]


def _constants(node: Node) -> Iterator[Fraction]:
    if isinstance(node, Number):
        yield node.value
    for child in children(node):
        yield from _constants(child)
