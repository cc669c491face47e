"""Equal values: in every way to write them, and told apart however close they are."""

from fractions import Fraction
from math import prod

import pytest

from rewards.maths.evaluate import exact
from rewards.maths.parser import parse
from rewards.maths.syntax import Number, replaced
from rewards.maths.zero_testing import same_value, sign_of_infinity


def same(a: str, b: str) -> bool:
    left, right = parse(a), parse(b)
    assert same_value(left, right) == same_value(right, left), "not symmetric"
    return same_value(left, right)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (r"\frac{2}{\sqrt{3}}", r"\frac{2\sqrt{3}}{3}"), (r"\sqrt{3+2\sqrt{2}}", r"1+\sqrt{2}"),
        (r"\frac{1}{1+\sqrt{3}}", r"\frac{\sqrt{3}-1}{2}"), (r"\sqrt[3]{2+\sqrt{5}}", r"\frac{1+\sqrt{5}}{2}"),
        (r"\log_2 8", "3"), (r"\frac{\ln 3}{\ln 2}", r"\log_2 3"), (r"\ln 4", r"2 \ln 2"), ("e^{2x}", "(e^x)^2"),
        ("2^{n+1}", r"2 \cdot 2^n"), (r"2^n 3^n", "6^n"), (r"\log 100", "2"), (r"\log x^2", r"2 \log x"),
        (r"\sin^2 x + \cos^2 x", "1"), (r"\sin 2x", r"2 \sin x \cos x"), (r"\tan x", r"\frac{\sin x}{\cos x}"),
        (r"\arctan 1", r"\frac{\pi}{4}"), (r"\sin 15^\circ", r"\frac{\sqrt{6}-\sqrt{2}}{4}"),
        (r"\tanh^{-1} x", r"\frac{1}{2}\ln\frac{1+x}{1-x}"), (r"\arcsin x + \arccos x", r"\frac{\pi}{2}"),
        ("x!", "x (x-1)!"), (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"), (r"\frac{(2n)!}{n! n!}", r"\binom{2n}{n}"),
        (r"\cos(n \pi)", "(-1)^n"), ("(-1)^{n+1}", "(-1)^{n-1}"), (r"\sin(n\pi)", "0"),
        (r"\lfloor \frac{n}{2} \rfloor + \lceil \frac{n}{2} \rceil", "n"), (r"\ln x^2", r"2 \ln x"),
        (r"\ln x^2", r"2 \ln |x|"), (r"\sqrt{x}\sqrt{y}", r"\sqrt{xy}"),
        (r"\sqrt{x^2}", "|x|"), ("|x||y|", "|xy|"), ("|x-y|", "|y-x|"), (r"\max(x,y) + \min(x,y)", "x+y"),
        (r"z\bar{z}", "|z|^2"), ("e^{i\\pi/3}", r"\frac{1+\sqrt{3}i}{2}"), (r"\frac{1+i}{1-i}", "i"),
        ("cis(x)", r"\cos x + i \sin x"), (r"\sqrt{-4}", "2i"),
        ("x^{1/2}", r"\sqrt{x}"), (r"x\sqrt{x}", "x^{3/2}"), (r"\frac{x^2-1}{x-1}", "x+1"),
        ("(x+1)^{100}", "(x+1)^{50}(x+1)^{50}"), (r"\frac{10^{1000}}{10^{999}}", "10"),
        (r"\frac{2006!}{2004!}", r"2006 \cdot 2005"),
    ],
)  # fmt: skip
def test_the_same_value(a, b) -> None:
    assert same(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (r"\frac{1}{2004!}", r"\frac{1}{2006!}"), ("2^{-99}", "2^{-98}"), (r"\cos(10^{-300})", "1"), ("1e-7", "2e-7"),
        (r"\pi + 10^{-300}", r"\pi"), (r"\sqrt{2} + 10^{-100}", r"\sqrt{2}"), (r"\sin x + 10^{-300}", r"\sin x"),
        (r"e^{10^{-200}}", "1"),
        (r"10^{400} + \pi", "10^{400} + e"), (r"\cos(\cos(10^{-40}) - 1)", "1"), (r"x + 10^{-50}", "x"),
        (r"\frac{x^{100}}{10^{200}}", "0"), ("e^{-1000}", "0"), (r"\arctan(10^{100})", r"\frac{\pi}{2}"),
        ("|x|", "x"), ("|xy|", "xy"), ("|x|y", "xy"), ("|x-100|", "100-x"), (r"\max(x, 100)", "100"),
        (r"\min(x, 100)", "x"), (r"\lfloor x \rfloor + \lfloor -x \rfloor", "-1"),
        (r"\lceil \frac{x}{1000} \rceil", "1"), ("sign(x)", "1"), (r"\sqrt{(x-1)^2}", "x-1"),
        ("x mod 1000", "x"), (r"\bar{z}", "z"), ("Re(z)", "z"), (r"\ln x^2", r"(\ln x)^2"), (r"\ln 100", "2"),
        (r"\log 8", "3"), (r"\log_2 3", r"\log_3 2"), ("(-1)^n", "1"), (r"\cos(n\pi)", "1"), ("x", "y"),
        ("x^2", "x_2"), ("i", "-i"), (r"\sqrt{4}", "-2"),
        ("2^{2^{100}}", "2^{2^{101}}"), ("1/0", "2/0"), ("0^0", "1"), ("n", r"\sin(n \pi) + n^2"),
    ],
)  # fmt: skip
def test_another_value(a, b) -> None:
    assert not same(a, b)


def test_what_cannot_be_evaluated_is_equal_only_as_written() -> None:
    assert same("9^{9^{9^9}}", "9^{9^{9^9}}") and not same("9^{9^{9^9}}", "9^{9^{9^9}} + 0")


@pytest.mark.parametrize(
    ("text", "sign"), [(r"\infty", 1), (r"+\infty", 1), (r"-\infty", -1), ("10^{300}", 0), ("x", 0)]
)
def test_infinity(text, sign) -> None:
    assert sign_of_infinity(parse(text)) == sign


@pytest.mark.parametrize("degree", range(3, 8))
@pytest.mark.parametrize("gold", ["2^n", r"\binom{2n}{n}", "3^n - 1", "n!"])
def test_no_polynomial_through_small_cases_is_an_identity(gold, degree) -> None:
    values = [exact(replaced(parse(gold), "n", Number(Fraction(n)))) for n in range(1, degree + 1)]
    terms = []
    for place, value in enumerate(values, 1):
        others = [n for n in range(1, degree + 1) if n != place]
        scale = value / prod(place - n for n in others)
        terms.append(f"({scale})" + "".join(f"(n-{n})" for n in others))
    assert not same_value(parse(" + ".join(terms)), parse(gold))
    assert not same_value(parse(" + ".join(terms) + r" + 0\sin n"), parse(gold))
