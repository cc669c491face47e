"""Numbers as people write them, read exactly."""

from fractions import Fraction

import pytest

from rewards.maths.evaluate import exact
from rewards.maths.limits import UnreadableError
from rewards.maths.literals import parse_number
from rewards.maths.parser import parse
from rewards.maths.syntax import BasedNumber, Group, Number, Op, Quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234", 1234), ("007", 7), ("-0.50", Fraction(-1, 2)), (".5", Fraction(1, 2)), ("3 1/2", Fraction(7, 2)),
        (r"3\frac{1}{2}", Fraction(7, 2)), (r"3\dfrac12", Fraction(7, 2)), ("2½", Fraction(5, 2)),
        (r"\frac12", Fraction(1, 2)),
        (r"\frac{1}2", Fraction(1, 2)), (r"\frac 1 2", Fraction(1, 2)), ("-3 1/2", Fraction(-7, 2)),
        (r"1.5 \times 10^{-3}", Fraction(3, 2000)), ("1.5e-3", Fraction(3, 2000)), ("2E3", 2000),
        ("10⁻³", Fraction(1, 1000)), ("10^-3", Fraction(1, 1000)),
        (r"0.\overline{3}", Fraction(1, 3)), (r"0.1\overline{6}", Fraction(1, 6)),
        (r"0.\overline{142857}", Fraction(1, 7)),
        (r"2.\bar{3}", Fraction(7, 3)), (r"0.\dot{3}", Fraction(1, 3)), ("0.(3)", Fraction(1, 3)),
        ("0.333...", Fraction(1, 3)),
        (r"0.1212\ldots", Fraction(4, 33)), ("0.125...", Fraction(1, 8)), ("2^3^2", 512), ("-2^2", -4), ("3!", 6),
        ("50%", Fraction(1, 2)),
        (r"33\frac{1}{3}\%", Fraction(1, 3)), (r"\binom{5}{2}", 10), ("gcd(12, 18)", 6),
        ("-7 mod 3", 2), ("17 mod 5", 2), (r"\lfloor -2.5 \rfloor", -3), (r"\lceil 2.1 \rceil", 3), ("|-3|", 3),
        ("√16", 4), (r"\sqrt[3]{27}", 3),
        ("negative 5", -5), ("(2)(3)", 6), ("2(3)", 6), ("1/2/4", Fraction(1, 8)), ("6÷2", 3), ("2 - 3 - 4", -5),
    ],
)  # fmt: skip
def test_exact_values(text, number) -> None:
    assert exact(parse(text)) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1 000 000", 10**6), ("2 3", None), ("0 123", None), ("1,23", None), ("1000,5", Fraction(2001, 2)),
        ("1.2.3", None), ("1e400", 10**400),
        ("1e401", None), ("1/0", None), ("3/4", Fraction(3, 4)), ("5 %", Fraction(1, 20)), (r"3\cdot10^{4}", 30000),
        (r"1\frac{1}{2}", Fraction(3, 2)), ("x", None), ("", None),
    ],
)  # fmt: skip
def test_plain_numbers_from_text(text, number) -> None:
    assert parse_number(text) == number


def test_a_mixed_number_has_a_proper_fraction_and_no_sign_between() -> None:
    assert exact(parse(r"3\frac{3}{2}")) == Fraction(9, 2)  # a product
    assert exact(parse(r"3 \cdot \frac{1}{2}")) == Fraction(3, 2)
    assert isinstance(parse(r"x\frac{1}{2}"), Op)


def test_within_brackets_a_comma_separates() -> None:
    assert parse("(1,234)") == Group("()", (Number(Fraction(1)), Number(Fraction(234))))
    assert parse("1,234") == Number(Fraction(1234))


@pytest.mark.parametrize("text", ["11_2", "11_{2}", "(11)_2", r"11_{\text{two}}"])
def test_a_numeral_in_a_base(text) -> None:
    assert parse(text) == BasedNumber("11", 2)


@pytest.mark.parametrize("text", ["11_1", "11_x", "11_{37}"])
def test_what_is_no_base(text) -> None:
    with pytest.raises(UnreadableError):
        parse(text)


@pytest.mark.parametrize("text", ["90°", r"90^\circ", r"90^{\circ}", r"90\degree", "90º"])
def test_degrees(text) -> None:
    assert parse(text) == Op("degree", (Number(Fraction(90)),))


def test_minutes_and_seconds_of_arc() -> None:
    assert exact(parse("30°15'").args[0]) == Fraction(121, 4)
    assert exact(parse(r"1^\circ 30' 36''").args[0]) == Fraction(151, 100)


def test_temperatures_are_units() -> None:
    assert parse("25°C") == parse(r"25^\circ\text{C}") == Quantity(Number(Fraction(25)), "celsius")


def test_places_count_the_digits_behind_the_point() -> None:
    assert parse("2.50") == Number(Fraction(5, 2), 2) and parse("2") == Number(Fraction(2), None)


@pytest.mark.parametrize("text", ["1e9999999", r"\frac1,234", "4.(", "½½½½" * 200])
def test_no_number_breaks_the_reader(text) -> None:
    try:
        parse(text)
    except UnreadableError:
        pass
