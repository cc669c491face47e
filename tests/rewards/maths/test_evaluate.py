"""Exact values and values modulo a prime: right, and bounded."""

from fractions import Fraction

import pytest

from rewards.maths.errors import UndecidedError
from rewards.maths.evaluate import MAX_BITS, PRIME, exact, residue
from rewards.maths.parser import parse
from rewards.maths.syntax import Op


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2^10", 1024), ("2^{-2}", Fraction(1, 4)), ("4^{1/2}", 2), ("8^{2/3}", 4),
        (r"\sqrt{\frac{9}{4}}", Fraction(3, 2)), (r"\sqrt[5]{32}", 2),
        (r"\frac{6!}{4!}", 30), (r"\binom{10}{3}", 120), ("lcm(4, 6)", 12), ("sign(-4)", -1), ("|3-5|", 2), ("0!", 1), (r"\sqrt{0}", 0),
    ],
)  # fmt: skip
def test_rational_values(text, value) -> None:
    assert exact(parse(text)) == value


@pytest.mark.parametrize(
    "text",
    [
        "x",
        r"\pi",
        r"\sqrt{2}",
        "1/0",
        "0^0",
        "0^{-1}",
        "(-8)^{1/3}",
        "(1/2)!",
        "(-1)!",
        r"\binom{1/2}{1}",
        r"\sin 0",
        "5 mod 0",
        r"\sqrt{-4}",
    ],
)
def test_no_rational_value(text) -> None:
    assert exact(parse(text)) is None


@pytest.mark.parametrize(
    "text", ["2^{100000}", "9^{9^9}", "5000!", r"\binom{9999}{5000}", "(2^{30000})^2", "(1/3)^{30000}"]
)
def test_values_are_bounded(text) -> None:
    assert exact(parse(text)) is None


def test_the_bound_is_beyond_what_answers_need() -> None:
    assert exact(parse("2004!")) and exact(parse("2^{19999}")) == 2**19999 and MAX_BITS == 40_000


@pytest.mark.parametrize("name", ["div", "pow", "binom", "mod", "sqrt", "add"])
def test_a_wrong_number_of_arguments_has_no_value(name) -> None:
    assert exact(Op(name, (parse("2"),) * (3 if name != "add" else 1))) is None


def test_residues_of_equal_rational_functions_are_equal() -> None:
    point = {"x": 12345, "y": 987654321, "pi": 17}
    same = [
        ("(x+y)^2", "x^2+2xy+y^2"), (r"\frac{x^2-y^2}{x-y}", "x+y"), (r"\frac{\pi}{2}", r"0.5\pi"), ("x^{-1}", "1/x"),
        (r"50\%x", "x/2"),
    ]  # fmt: skip
    for left, right in same:
        assert residue(parse(left), point) == residue(parse(right), point)
    assert residue(parse("x"), point) != residue(parse("y"), point)


@pytest.mark.parametrize("text", ["x^{1/2}", r"\sqrt{x}", r"\sin x", "x^y", "1/(x-x)", "x^{20000}", "z", "|x|"])
def test_no_residue(text) -> None:
    with pytest.raises(UndecidedError):
        residue(parse(text), {"x": 2, "y": 3})


def test_a_residue_is_below_the_prime() -> None:
    assert residue(parse("-1"), {}) == PRIME - 1 and residue(parse("1/2"), {}) * 2 % PRIME == 1
