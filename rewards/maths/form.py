r"""The form of an answer: what it leaves undone that the gold does not.

An equal value is not yet an answer: `7^{2023} \bmod 100` restates the question. So a strict verdict asks besides that
everything that an answer leaves to its reader is left by the gold, too. The kinds of things left undone are `Undone`; an
answer is as simple as the gold, or simpler, if its kinds are among the gold's. Anything else is a matter of taste, and is
not looked at: whether a polynomial is factored, a fraction reduced, a root simplified, a decimal or a fraction; powers of
numbers, factorials and binomials are closed forms, alone and with one coefficient.

>>> from rewards.maths.parser import parse
>>> def left(answer, gold): return undone(parse(answer), parse(gold))
>>> left(r"23 \cdot 17", "391"), left("40 + 2", "42"), left(r"\gcd(84, 126)", "42"), left("84/2", "42")
('a product of numbers', 'a sum of numbers', 'a greatest common divisor or least common multiple', 'a quotient of numbers')
>>> left("2x + 1 < 7", "x < 3"), left("3x = 15", "x = 5"), left(r"\sin 30^\circ", "0.5")
('an inequality that is not solved', 'an equation that is not solved', 'a sine or its like')
>>> left("6/4", "3/2"), left("2^{10}", "1024"), left("5!", "120"), left(r"\frac{1}{\sqrt 2}", r"\frac{\sqrt 2}{2}"), left("x^2 - 1", "(x-1)(x+1)")
('', '', '', '', '')
"""

from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from typing import Literal, get_args

from rewards.maths.evaluate import exact
from rewards.maths.syntax import (
    Node,
    Number,
    Op,
    Relation,
    Symbol,
    children,
    contains,
    is_expression,
    is_name,
    is_op,
    symbols,
)

Form = Literal["strict", "equivalent"]
FORMS: tuple[Form, ...] = get_args(Form)
"""strict: equal, and no more left undone than in the gold. equivalent: equal."""
LARGE = 10**9
"""Numbers from here on are not written out: 2^{100} - 1 leaves nothing to do."""


class Undone(StrEnum):
    """What an answer can leave to its reader."""

    SUM = "a sum of numbers"
    PRODUCT = "a product of numbers"
    QUOTIENT = "a quotient of numbers"
    TOWER = "a power of a power"
    ROOT = "a root that comes out even"
    REMAINDER = "a remainder"
    DIVISOR = "a greatest common divisor or least common multiple"
    ROUNDED = "a number to be rounded"
    CHOICE = "a choice by size or sign"
    ABSOLUTE = "an absolute value"
    COMPLEX = "a part of a complex number"
    DETERMINANT = "a determinant"
    CIRCULAR = "a sine or its like"
    HYPERBOLIC = "a hyperbolic function"
    INVERSE = "an arcsine or its like"
    LOGARITHM = "a logarithm"
    EQUATION = "an equation that is not solved"
    INEQUALITY = "an inequality that is not solved"


_KINDS = {
    "mod": Undone.REMAINDER, "gcd": Undone.DIVISOR, "lcm": Undone.DIVISOR, "floor": Undone.ROUNDED, "ceil": Undone.ROUNDED,
    "min": Undone.CHOICE, "max": Undone.CHOICE, "sign": Undone.CHOICE, "det": Undone.DETERMINANT,
    "re": Undone.COMPLEX, "im": Undone.COMPLEX, "arg": Undone.COMPLEX, "conj": Undone.COMPLEX,
    "log": Undone.LOGARITHM, "ln": Undone.LOGARITHM, "lg": Undone.LOGARITHM,
    **dict.fromkeys("sin cos tan cot sec csc cis".split(), Undone.CIRCULAR),
    **dict.fromkeys("sinh cosh tanh coth".split(), Undone.HYPERBOLIC),
}  # fmt: skip
_CLOSED = ("pow", "fact", "fact2", "binom")
"""Operations on numbers that count as worked out."""
_ORDER = frozenset({"<", "<=", ">", ">=", "!="})


def undone(answer: Node, gold: Node) -> str:
    """What the answer leaves undone and the gold does not, in words; "" where there is nothing."""
    left = list(dict.fromkeys(_kinds(answer)))
    allowed = set(_kinds(gold)) if left else set()
    if contains(gold, "mod") and _names_classes(answer):
        allowed.add(Undone.REMAINDER)
    if contains(gold, "abs"):
        allowed.add(Undone.ABSOLUTE)
    return next((kind.value for kind in left if kind not in allowed), "")


def _names_classes(node: Node) -> bool:
    """10 (mod 7) for 3 (mod 7): another member of the class; 7^{2023} (mod 100) has yet to be found."""
    if is_op(node, "mod"):
        return all(isinstance(a, Number) for a in node.args)
    return all(map(_names_classes, children(node)))


def _kinds(node: Node) -> Iterator[Undone]:
    """Everything that a node leaves undone, from the outside in."""
    if isinstance(node, Relation):
        yield from _of_relation(node)
    elif is_expression(node) and isinstance(node, Op):
        yield from _of_operation(node)
    for child in children(node):
        yield from _kinds(child)


def _of_relation(node: Relation) -> Iterator[Undone]:
    """One unknown that does not stand alone."""
    if len(symbols(node)) != 1 or not all(map(is_expression, node.sides)):
        return
    unknowns = [side for side in node.sides if symbols(side)]
    if set(node.ops) <= _ORDER and not (len(unknowns) == 1 and _is_alone(unknowns[0])):
        yield Undone.INEQUALITY
    elif node.ops == ("=",) and not (len(unknowns) == 1 and is_name(unknowns[0])):
        yield Undone.EQUATION


def _is_alone(side: Node) -> bool:
    """x, -x and |x|: a bound on them needs no solving."""
    if is_op(side, "neg") or is_op(side, "abs"):
        return _is_alone(side.args[0])
    return isinstance(side, Symbol)


def _of_operation(node: Op) -> Iterator[Undone]:
    if node.name in _KINDS and not _is_reduced(node):
        yield _KINDS[node.name]
    elif node.name.startswith("arc"):
        yield Undone.INVERSE
    elif node.name == "abs" and not (isinstance(node.args[0], Number | Symbol)):
        yield Undone.ABSOLUTE
    elif node.name == "add":
        if _rational_terms(node) > 1 and not _is_mixed(node):
            yield Undone.SUM
    elif node.name in ("mul", "div"):
        yield from _of_product(node)
    elif node.name in ("pow", "sqrt", "cbrt"):
        yield from _of_power(node)


def _is_reduced(node: Op) -> bool:
    """3 mod 7 is 3 and nothing else."""
    if node.name != "mod":
        return False
    residue, modulus = (exact(a) if isinstance(a, Number) else None for a in node.args)
    return residue is not None and modulus is not None and 0 <= residue < modulus


def _rational_terms(node: Op) -> int:
    """How many terms of a sum are numbers that could be added up."""
    values = [exact(term) for term in _flat(node, "add")]
    return sum(v is not None and abs(v) < LARGE for v in values)


def _is_mixed(node: Op) -> bool:
    """5 + 2/3"""
    match node.args:
        case (Number(whole), Number(part)):
            return whole.denominator == 1 and whole > 0 and 0 < part < 1
    return False


def _of_product(node: Op) -> Iterator[Undone]:
    """More than one plain factor (42 * 1, too, but not 1 x * 1), or a quotient of plain numbers."""
    above, below = _factors(node)
    numbers = all(isinstance(factor, Number) for factor in (*above, *below))
    if any(sum(map(_is_plain, side)) > 1 or numbers and len(side) > 1 for side in (above, below)):
        yield Undone.PRODUCT
    elif any(map(_is_plain, above)) and any(map(_is_plain, below)):
        fraction = any(isinstance(f, Number) and f.value.denominator != 1 for f in (*above, *below))
        if fraction or all(map(_is_plain, (*above, *below))) and not _is_fraction(node):
            yield Undone.QUOTIENT


def _is_fraction(node: Op) -> bool:
    """1/3 * 2 is 2/3, which can't be worked out further; 84/2 can."""
    value = exact(node)
    return value is not None and value.denominator != 1


def _factors(node: Node) -> tuple[list[Node], list[Node]]:
    """The factors above and below the line, signs aside."""
    if is_op(node, "neg"):
        return _factors(node.args[0])
    if is_op(node, "mul"):
        pairs = [_factor_of_product(a) for a in node.args]
        return [f for above, _ in pairs for f in above], [f for _, below in pairs for f in below]
    if is_op(node, "div"):
        (above, below), (under, over) = map(_factors, node.args)
        return above + over, below + under
    return [node], []


def _factor_of_product(node: Node) -> tuple[list[Node], list[Node]]:
    """A quarter is a 4 below the line: 1/4 * 5 pi is 5 pi / 4."""
    if isinstance(node, Number) and abs(node.value.numerator) == 1 < node.value.denominator and node.places is None:
        return [], [Number(Fraction(node.value.denominator))]
    return _factors(node)


def _is_plain(factor: Node) -> bool:
    """A number that is no power, factorial or binomial; 7^1 is plain, too, but 4.2 * 10^1 is a notation."""
    if isinstance(factor, Number):
        return abs(factor.value) != 1
    if not isinstance(factor, Op) or exact(factor) is None:
        return False
    return factor.name not in _CLOSED or (
        factor.name == "pow" and exact(factor.args[1]) == 1 and exact(factor.args[0]) != 10
    )


def _of_power(node: Op) -> Iterator[Undone]:
    if node.name != "pow":
        if exact(node) is not None:
            yield Undone.ROOT
        return
    base, exponent = node.args
    power = exact(exponent)
    if base == Symbol("e") and _mentions_i(exponent):
        yield Undone.CIRCULAR
    if power is not None and power.denominator != 1 and exact(node) is not None:
        yield Undone.ROOT
    if exact(base) is not None and any(is_op(n, "pow") and exact(n) is not None for n in node.args):
        yield Undone.TOWER


def _mentions_i(node: Node) -> bool:
    return node == Symbol("i") or any(map(_mentions_i, children(node)))


def _flat(node: Node, name: str) -> Iterator[Node]:
    """The terms of a sum of sums."""
    if is_op(node, name):
        for argument in node.args:
            yield from _flat(argument, name)
    elif is_op(node, "neg"):
        yield from _flat(node.args[0], name)
    else:
        yield node
