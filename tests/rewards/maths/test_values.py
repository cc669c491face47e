"""Rounding: where it makes an answer right, and where it does not."""

from fractions import Fraction

import pytest

from rewards.maths.parser import parse
from rewards.maths.syntax import Number
from rewards.maths.values import same_up_to_rounding, significant_digits


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("27/59", "0.458"), ("1/3", "0.333"), (r"\pi", "3.14"), (r"\sqrt{2}", "1.414"), ("3.14159", "3.142"),
        ("0.1234567", "0.1235"), ("2/3", "0.666"), ("1/3", "0.3333333333333333"), ("0.3333333333333333", "1/3"),
        ("0.30000000000000004", "3/10"), ("e^2", "7.389"),
    ],
)  # fmt: skip
def test_what_rounds_to_the_gold(answer, gold) -> None:
    assert same_up_to_rounding(parse(answer), parse(gold))


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("0.333", "1/3"), ("3.14", r"\pi"), ("3.15", "3.14"), ("3", "3.14"), ("3.1", "3.14"),
        ("41.99999999999999", "42"), ("42.0000000001", "42"), ("0.5", "0.45"), ("1/3", "0.3"), ("x", "0.5"),
        ("0.458", "0.459"), ("i", "0.5"), ("0.334", "0.33"), ("22/7", r"\pi"),
        ("1/3", "0.33"), ("51/20", "2.5"), ("1255/100", "12.5"), (r"2\sqrt{3}", "3.5"), (r"\sqrt{157}", "12.5"),
        (r"\pi^2+0.1", "10.0"), ("125/1000", "0.12"), ("6.254", "6.25"),
    ],
)  # fmt: skip
def test_what_does_not_round_to_the_gold(answer, gold) -> None:
    assert not same_up_to_rounding(parse(answer), parse(gold))


def test_leading_zeros_are_no_digits() -> None:
    assert (
        significant_digits(Number(Fraction(12, 1000), 3)) == 2
        and significant_digits(Number(Fraction(250, 100), 2)) == 3
    )
