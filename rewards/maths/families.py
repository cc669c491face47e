r"""Families of numbers, one for each integer k: pi/2 + k pi, 5k + 2, 2 (mod 5), and unions of them, compared as sets.

A family is read as arithmetic progressions over all integers, so that another letter, a shifted counter, the other sign, or
one family split into two are the same set; what has no such form is the same only in the same counter, or one that runs
backwards or begins elsewhere. Decided exactly or not at all.
"""

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from rewards.maths.evaluate import exact
from rewards.maths.syntax import (
    Group,
    Node,
    Number,
    Op,
    Relation,
    Symbol,
    is_expression,
    is_name,
    is_op,
    replaced,
    symbols,
)
from rewards.maths.values import approximate, mentions_period
from rewards.maths.zero_testing import same_value

COUNTERS = frozenset("k n m l t j r s q K N".split())
MAX_PERIOD = 4
"""Families that are linear in k only for every other k, as (-1)^k pi/6 + k pi is, are split into at most so many."""
MAX_ELEMENTS = 120


@dataclass(frozen=True)
class Progression:
    """start + step k for all integers k; step is not 0."""

    start: Node
    step: Node


def is_family(gold: Node, over_integers: bool, answer_over_integers: bool) -> bool:
    """True where a gold stands for a set of numbers: a residue class, or an expression in a counter that runs over Z.

    A gold with a period (pi/6 + k pi) need not say so itself if the answer does. A formula, as a_n = 2n or 2^n, is none.
    """
    values = _values(gold)
    if values is None:
        return False
    if any(is_op(v, "mod") for v in values):
        return True
    counted = [symbols(v) for v in values]
    if not any(counted) or any(len(names) > 1 or not names <= COUNTERS for names in counted):
        return False
    return over_integers or (answer_over_integers and any(map(mentions_period, values)))


def same_family(a: Node, g: Node) -> bool | None:
    """True where two families are the same set of numbers; None where they can't be compared as sets."""
    if not _agree_in_name(a, g):
        return None
    answer, gold = progressions(a), progressions(g)
    if answer is not None and gold is not None:
        return _same_union(answer, gold)
    values = _values(a), _values(g)
    if gold is not None and values[0] is not None and not any(map(symbols, values[0])):
        return False  # numbers, and finitely many
    if values[0] is None or values[1] is None or any(is_op(v, "mod") for side in values for v in side or ()):
        return None
    return _same_counted(values[0], values[1])


def _agree_in_name(a: Node, g: Node) -> bool:
    names = {n.sides[0] for side in (a, g) for n in _parts(side) if isinstance(n, Relation) and is_name(n.sides[0])}
    return len({n.name for n in names if isinstance(n, Symbol)}) <= 1 or len(_parts(g)) > 1


def _parts(node: Node) -> tuple[Node, ...]:
    return node.items if isinstance(node, Group) and node.brackets in ("", "{}") else (node,)


def _values(node: Node) -> list[Node] | None:
    """The expressions that a node gives: itself, what "x = ..." says, each part of a list. None if there is anything else.

    A modulus at the end is that of the whole list: 1, 4 (mod 5).
    """
    found: list[Node] = []
    for part in _parts(node):
        if isinstance(part, Relation):
            if part.ops != ("=",) or not isinstance(part.sides[0], Symbol) or _counts(part.sides[0], part.sides[1]):
                return None
            part = part.sides[1]
        if not is_expression(part):
            return None
        found.append(part)
    last = found[-1] if found else None
    if last is not None and is_op(last, "mod") and not any(is_op(v, "mod") or symbols(v) for v in found[:-1]):
        found[:-1] = [Op("mod", (v, last.args[1])) for v in found[:-1]]
    return found or None


def _counts(name: Symbol, value: Node) -> bool:
    """a_n in "a_n = 2n": a sequence, not a set."""
    return name.name.partition("_")[2] in symbols(value) and "_" in name.name


def progressions(node: Node) -> list[Progression] | None:
    """A node as a union of progressions; None if it is none."""
    found: list[Progression] = []
    for value in _values(node) or ():
        parts = _of_value(value)
        if parts is None:
            return None
        found += parts
    return found or None


def _of_value(value: Node) -> list[Progression] | None:
    if is_op(value, "mod"):
        residue, modulus = value.args
        if exact(modulus) is None or exact(residue) is None or not exact(modulus):
            return None
        return [Progression(residue, modulus)]
    names = symbols(value)
    if len(names) != 1 or not names <= COUNTERS:
        return None
    (name,) = names
    for period in range(1, MAX_PERIOD + 1):
        parts = [_linear(_every(value, name, period, place), name) for place in range(period)]
        if None not in parts:
            return [part for part in parts if part is not None]
    return None


def _every(value: Node, name: str, period: int, place: int) -> Node:
    if period == 1:
        return value
    counter = Op("add", (Op("mul", (Number(Fraction(period)), Symbol(name))), Number(Fraction(place))))
    return replaced(value, name, counter)


def _linear(value: Node, name: str) -> Progression | None:
    start, after = (replaced(value, name, Number(Fraction(k))) for k in (0, 1))
    step = _difference(after, start)
    if same_value(step, Number(Fraction(0))):
        return None
    line = Op("add", (start, Op("mul", (step, Symbol(name)))))
    return Progression(start, step) if same_value(value, line) else None


def _difference(a: Node, b: Node) -> Node:
    return Op("add", (a, Op("neg", (b,))))


def _same_union(a: list[Progression], g: list[Progression]) -> bool | None:
    """Compared within one common period; None if there is none, or too long a one."""
    unit = g[0].step
    steps = [_ratio(p.step, unit) for p in (*a, *g)]
    if any(s is None for s in steps):
        return False  # no common period: different sets
    sizes = [abs(s) for s in steps if s is not None]
    period = Fraction(lcm(*(s.numerator for s in sizes)), gcd(*(s.denominator for s in sizes)))
    if sum(period / s for s in sizes) > MAX_ELEMENTS:
        return None
    sets = [
        [
            Op("add", (p.start, Op("mul", (Number(Fraction(k)), p.step))))
            for p, size in zip(side, own, strict=True)
            for k in range(int(period / size))
        ]
        for side, own in ((a, sizes[: len(a)]), (g, sizes[len(a) :]))
    ]
    return all(
        any(_whole_multiple(x, y, period, unit) for y in sets[1 - i]) for i, side in enumerate(sets) for x in side
    )


def _ratio(a: Node, b: Node) -> Fraction | None:
    """a / b if it is rational, with a small denominator."""
    quotient = approximate(Op("div", (a, b)))
    if quotient is None:
        return None
    near = quotient.limit_denominator(1000)
    return near if near and same_value(a, Op("mul", (Number(near), b))) else None


def _whole_multiple(x: Node, y: Node, period: Fraction, unit: Node) -> bool:
    """True where x and y are whole periods apart."""
    difference = _difference(x, y)
    length = Op("mul", (Number(period), unit))
    times = approximate(Op("div", (difference, length)))
    if times is None or abs(times - round(times)) > Fraction(1, 10**20):
        return False
    return same_value(difference, Op("mul", (Number(Fraction(round(times))), length)))


def _same_counted(a: list[Node], g: list[Node]) -> bool | None:
    """Single expressions that are no progressions, such as k^2: the same in a counter that is renamed, turned or shifted."""
    if len(a) != 1 or len(g) != 1 or any(len(symbols(v)) != 1 for v in (*a, *g)):
        return None
    (old,), (new,) = symbols(a[0]), symbols(g[0])
    for sign, shift in ((s, c) for s in (1, -1) for c in (0, 1, -1, 2, -2)):
        counter = Op("add", (Op("mul", (Number(Fraction(sign)), Symbol(new))), Number(Fraction(shift))))
        if same_value(replaced(a[0], old, counter), g[0]):
            return True
    return False
