"""Points at which expressions are compared.

They depend on the two expressions, so that nobody can choose an expression that is right at known points.
"""

import hashlib
import random
from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import islice, product

from rewards.maths.syntax import Node, Number, Op, Symbol, children

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


def whole_points(names: list[str]) -> Iterator[dict[str, Fraction]]:
    """Small whole numbers, different for each name."""
    for start in (1, 2, 3, 4, 7, 10, 6, 5):
        yield {name: Fraction(start + 3 * place) for place, name in enumerate(names)}


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
