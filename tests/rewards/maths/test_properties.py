"""Properties over random expressions: what is written is what is read, the same stays the same, and a change is seen."""

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from rewards.maths import equivalent
from rewards.maths.evaluate import Evaluator
from rewards.maths.parser import parse
from rewards.maths.syntax import Node, Op, Symbol
from tests.rewards.maths.trees import POINTS, ascii_text, latex, number, rational_trees, tame, trees, value

tame_trees = trees.filter(tame)
writers = st.sampled_from((latex, ascii_text))


def examples(count: int) -> settings:
    """Trees are filtered a lot, and the first one waits for mpmath."""
    return settings(
        max_examples=count, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow]
    )


def add(*args: Node) -> Node:
    return Op("add", args)


def mul(*args: Node) -> Node:
    return Op("mul", args)


def neg(arg: Node) -> Node:
    return Op("neg", (arg,))


def div(top: Node, bottom: Node) -> Node:
    return Op("div", (top, bottom))


def power(base: Node, exponent: int | Fraction) -> Node:
    return Op("pow", (base, number(exponent)))


def root(arg: Node) -> Node:
    return Op("sqrt", (arg,))


def function(name: str, arg: Node) -> Node:
    return Op(name, (arg,))


CONTEXTS = (
    lambda hole, other: hole,
    lambda hole, other: add(hole, other),
    lambda hole, other: mul(other, hole),
    lambda hole, other: div(other, hole),
    lambda hole, other: function("sin", add(hole, other)),
    lambda hole, other: root(mul(hole, hole)),
)
"""Contexts for a rewritten part. The last has one value for both signs: a change of sign changes nothing there."""


@examples(300)
@given(tame_trees, writers)
def test_what_is_written_is_read_with_its_value(tree, write) -> None:
    parsed = parse(write(tree))
    for point in POINTS:
        evaluator = Evaluator({name: Fraction(v) for name, v in point.items()}, 160)
        assert complex(evaluator.value(parsed)) == pytest.approx(value(tree, point), rel=1e-9), write(tree)


X = Symbol("x")
REWRITES = {
    "sum commuted": lambda a, b, c: (add(a, b, c), add(c, a, b)),
    "product commuted": lambda a, b, c: (mul(a, b, c), mul(b, c, a)),
    "distributed": lambda a, b, c: (mul(a, add(b, c)), add(mul(a, b), mul(a, c))),
    "difference turned": lambda a, b, c: (add(a, neg(b)), neg(add(b, neg(a)))),
    "fraction widened": lambda a, b, c: (div(a, b), div(mul(a, number(3), X), mul(X, b, number(3)))),
    "fractions added": lambda a, b, c: (add(div(a, b), div(c, X)), div(add(mul(a, X), mul(c, b)), mul(b, X))),
    "quotient of quotients": lambda a, b, c: (div(a, div(b, c)), div(mul(a, c), b)),
    "powers added": lambda a, b, c: (mul(power(a, 2), power(a, 3)), power(a, 5)),
    "negative power": lambda a, b, c: (power(a, -2), div(number(1), mul(a, a))),
    "square multiplied out": lambda a, b, c: (power(add(a, b), 2), add(power(a, 2), mul(number(2), a, b), power(b, 2))),
    "root as a power": lambda a, b, c: (root(a), power(a, Fraction(1, 2))),
    "square taken out of a root": lambda a, b, c: (root(mul(number(49), a)), mul(number(7), root(a))),
    "root out of a denominator": lambda a, b, c: (div(b, root(number(3))), div(mul(b, root(number(3))), number(3))),
    "sine squared": lambda a, b, c: (
        power(function("sin", a), 2), add(number(1), neg(power(function("cos", a), 2))),
    ),
    "exponentials multiplied": lambda a, b, c: (
        mul(function("exp", a), function("exp", b)), function("exp", add(a, b)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REWRITES)
@examples(50)
@given(a=tame_trees, b=tame_trees, c=tame_trees, context=st.sampled_from(CONTEXTS), write=st.tuples(writers, writers))
def test_a_rewrite_that_keeps_the_value_is_the_same_answer(name, a, b, c, context, write) -> None:
    before, after = (context(part, c) for part in REWRITES[name](a, b, c))
    assume(tame(before) and tame(after))
    answer, gold = write[0](after), write[1](before)
    assert equivalent(answer, gold)[0], (answer, gold)
    assert equivalent(gold, answer)[0], (gold, answer)


CHANGES = {
    "another constant": lambda a, b, c: (add(a, number(3)), add(a, number(4))),
    "another factor": lambda a, b, c: (mul(number(3), a), mul(number(4), a)),
    "another sign": lambda a, b, c: (a, neg(a)),
    "another sign within": lambda a, b, c: (add(a, b), add(a, neg(b))),
    "another name": lambda a, b, c: (add(X, a), add(Symbol("y"), a)),
    "difference swapped": lambda a, b, c: (add(a, neg(b)), add(b, neg(a))),
    "quotient swapped": lambda a, b, c: (div(a, b), div(b, a)),
    "power swapped": lambda a, b, c: (Op("pow", (a, number(2))), Op("pow", (number(2), a))),
    "another exponent": lambda a, b, c: (power(a, 2), power(a, 3)),
    "sum for a product": lambda a, b, c: (add(a, b), mul(a, b)),
    "another function": lambda a, b, c: (function("sin", a), function("cos", a)),
    "a root forgotten": lambda a, b, c: (root(a), a),
    "brackets forgotten": lambda a, b, c: (mul(a, add(b, c)), add(mul(a, b), c)),
    "root of a sum": lambda a, b, c: (root(add(a, b)), add(root(a), root(b))),
}


@pytest.mark.parametrize("name", CHANGES)
@examples(50)
@given(a=tame_trees, b=tame_trees, c=tame_trees, context=st.sampled_from(CONTEXTS), write=st.tuples(writers, writers))
def test_a_change_of_value_is_another_answer(name, a, b, c, context, write) -> None:
    before, after = (context(part, c) for part in CHANGES[name](a, b, c))
    assume(tame(before) and tame(after) and _far(before, after))
    answer, gold = write[0](after), write[1](before)
    assert not equivalent(answer, gold)[0], (answer, gold)
    assert not equivalent(gold, answer)[0], (gold, answer)


def _far(a: Node, b: Node) -> bool:
    """True where two expressions differ plainly at some point, by Python's own arithmetic."""
    pairs = [(value(a, point), value(b, point)) for point in POINTS]
    return any(abs(x - y) > 1e-3 * max(abs(x), abs(y)) for x, y in pairs)


@examples(100)
@given(rational_trees.filter(tame), st.integers(1, 200))
def test_a_difference_too_small_for_floating_point_is_seen(tree, exponent) -> None:
    nearly = add(tree, power(number(10), -exponent))
    assert not equivalent(latex(nearly), latex(tree))[0], latex(tree)
