"""Whether two expressions have the same value: exactly where they are rational, else by a zero test to many digits.

The number of digits follows from the magnitudes that the evaluation meets, so that 1/2004! and 1/2006!, or 1 and
cos(10^-300), are told apart: a difference counts as zero only far below anything that the expressions' own sizes explain.
"""

import hashlib
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction

from rewards.maths.errors import UndecidedError
from rewards.maths.evaluate import PRIME, Evaluator, exact, residue
from rewards.maths.syntax import Node, Number, Op, Symbol, contains, symbols

BITS = 160
MAX_WORKING_BITS = 12_000
POINTS = 3
ATTEMPTS = 8
_WHOLE_NUMBER_NAMES = frozenset("n k m j l r".split())


def same_value(a: Node, b: Node) -> bool:
    """Whether two expressions are equal: at positive points, and at negative ones where both are real.

    Expressions that can't be evaluated are equal only if they are written alike.
    """
    if a == b:
        return True
    exacts = exact(a), exact(b)
    if exacts[0] is not None and exacts[1] is not None:
        return exacts[0] == exacts[1]
    rational = _same_rational(a, b)
    if rational is not None:
        return rational
    names = sorted(symbols(a) | symbols(b))
    if _agree(a, b, _real_points(names, a, b), 1 if not names else POINTS):
        return not names or not _differ_for_negatives(a, b, names)
    return _over_whole_numbers(names, a, b) and _agree(a, b, _whole_points(names), POINTS)


def _same_rational(a: Node, b: Node) -> bool | None:
    """Equal as rational functions; None if they are none, or if e or pi might make a difference."""
    names = symbols(a) | symbols(b)
    generator = _generator(a, b)
    constants = {"pi", "e"}
    try:
        for _ in range(2):
            point = {name: generator.randrange(1, PRIME) for name in sorted(names | constants)}
            if residue(a, point) != residue(b, point):
                return False
    except UndecidedError:
        return None
    return True


def _agree(a: Node, b: Node, points: Iterator[Mapping[str, Fraction]], needed: int) -> bool:
    agreed = 0
    for point in points:
        try:
            if not _agree_at(a, b, point):
                return False
        except UndecidedError:
            continue  # no value here: another point
        agreed += 1
        if agreed == needed:
            return True
    return False


def _agree_at(a: Node, b: Node, point: Mapping[str, Fraction]) -> bool:
    bits = BITS
    while True:
        evaluator = Evaluator(point, bits)
        difference = evaluator.value(a) - evaluator.value(b)
        span = evaluator.span
        needed = BITS + 2 * (span.high - span.low)
        if needed > MAX_WORKING_BITS:
            raise UndecidedError("too many digits needed")
        if needed <= bits:
            return not difference or int(evaluator.mp.mag(difference)) < span.high - bits + 40
        bits = needed


def _differ_for_negatives(a: Node, b: Node, names: list[str]) -> bool:
    """Whether both are real somewhere among negative numbers and differ there, as |x| and x do (ln x^2 and 2 ln x don't)."""
    for point in list(_real_points(names, b, a))[:2]:
        negative = {name: -value for name, value in point.items()}
        try:
            evaluator = Evaluator(negative, BITS)
            if not (evaluator.is_real(a) and evaluator.is_real(b)):
                continue
            if not _agree_at(a, b, negative):
                return True
        except UndecidedError:
            continue
    return False


def _generator(a: Node, b: Node) -> random.Random:
    """Points that depend on the question, so that nobody can choose an expression that is right at known points."""
    return random.Random(hashlib.blake2b(repr((a, b)).encode(errors="replace"), digest_size=16).digest())


def _real_points(names: list[str], a: Node, b: Node) -> Iterator[dict[str, Fraction]]:
    if not names:
        yield {}
        return
    generator = _generator(a, b)
    for attempt in range(ATTEMPTS):
        # Near 1 on either side, and farther out: some functions live below 1, some above.
        low, high = ((2, 9), (11, 38))[attempt % 2]
        yield {name: Fraction(generator.randrange(low * 10**6, high * 10**6), 10**7) for name in names}


def _over_whole_numbers(names: list[str], a: Node, b: Node) -> bool:
    """Whether the variables look like whole numbers in something that only agrees there, such as cos(n pi) = (-1)^n."""
    periodic = ("sin", "cos", "tan", "pow", "fact", "floor", "ceil", "mod")
    return 0 < len(names) and set(names) <= _WHOLE_NUMBER_NAMES and (contains(a, *periodic) or contains(b, *periodic))


def _whole_points(names: list[str]) -> Iterator[dict[str, Fraction]]:
    for start in (1, 2, 3, 4, 7, 10, 6, 5):
        yield {name: Fraction(start + 3 * place) for place, name in enumerate(names)}


def number_of(node: Node) -> Fraction | None:
    """The exact number that a node stands for, whatever its unit."""
    return exact(node)


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
