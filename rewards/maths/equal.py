"""Whether two expressions have the same value: exactly where they are rational, else by a zero test to many digits.

The number of digits follows from the magnitudes that the evaluation meets, so that 1/2004! and 1/2006!, or 1 and
cos(10^-300), are told apart: a difference counts as zero only far below anything that the expressions' own sizes explain.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from rewards.maths.errors import UndecidedError
from rewards.maths.evaluate import PRIME, exact, residue
from rewards.maths.numeric import Evaluator
from rewards.maths.points import all_signs, complex_points, generator_of, near_breaks, positive_points, whole_points
from rewards.maths.syntax import Node, Number, Op, Symbol, contains, symbols

BITS = 160
MAX_WORKING_BITS = 12_000
POINTS = 3
_WHOLE_NUMBER_NAMES = frozenset("n k m j l r".split())
_PIECEWISE = ("abs", "floor", "ceil", "min", "max", "sign", "mod")
_ON_WHOLE_NUMBERS = ("sin", "cos", "tan", "pow", "fact", "floor", "ceil", "mod")
_COMPLEX = ("conj", "re", "im", "arg")


def same_value(a: Node, b: Node) -> bool:
    """Whether two expressions are equal: for positive variables, and for negative ones where both are real.

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
    return _over_whole_numbers(names, a, b) and _agree(a, b, whole_points(names), POINTS)


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
    """Whether the two agree at as many points as needed.

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
    """Whether they agree at a point, and whether both stayed real on the way."""
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
    """Whether two expressions that agree at a few positive points differ where both are real: |x| and x for negative x,
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
    """Whether the variables look like whole numbers in something that only agrees there, such as cos(n pi) = (-1)^n."""
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
