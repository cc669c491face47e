"""Choices, times of day and dates, read without a parser."""

import pytest

from rewards.maths.literals import choice, clock, date, same_clock, same_date


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", ("B", "")), ("(B)", ("B", "")), ("b)", None), ("(b)", ("B", "")), ("B.", ("B", "")),
        (r"\text{(C) } 5", ("C", "5")), (r"\textbf{(B)}\ 12", ("B", "12")), ("Option B", ("B", "")),
        ("choice (B)", ("B", "")), ("B: blue", ("B", "blue")),
        ("Blue", None), ("BC", None), ("A, B", None), ("A or B", None), ("(A) 5 or (B) 6", None), ("B. not C", None),
        ("C(5,2)", None), ("x", None), ("", None), ("B" + "x" * 400, None),
    ],
)  # fmt: skip
def test_choices(text, letter) -> None:
    assert choice(text) == letter


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("1:30", 90),
        ("1:30 PM", 810),
        ("1:30 p.m.", 810),
        (r"1:30 \text{ p.m.}", 810),
        ("13:30", 810),
        ("5 PM", 1020),
        ("12:00 AM", 0),
        ("12:15 pm", 735),
        ("25:00", None),
        ("13:00 PM", None),
        ("5:8", None),
        ("5", None),
        ("1:75", None),
    ],
)
def test_clocks(text, minutes) -> None:
    time = clock(text)
    assert (time[0] if time else None) == minutes


def test_a_clock_may_say_more_but_not_less() -> None:
    half_past_one, afternoon, night = clock("1:30"), clock("1:30 PM"), clock("1:30 AM")
    assert half_past_one and afternoon and night
    assert same_clock(afternoon, half_past_one) and not same_clock(half_past_one, afternoon)
    assert not same_clock(afternoon, night) and same_clock(afternoon, clock("13:30"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    ["January 5, 2020", "5 January 2020", "5th of Jan. 2020", "2020-01-05", r"\text{January } 5, 2020", "jan 5th 2020"],
)
def test_dates(text) -> None:
    assert date(text) == (2020, 1, 5)


def test_the_year_may_go_without_saying() -> None:
    may = date("May 5")
    assert (
        may == (None, 5, 5)
        and same_date(may, (2020, 5, 5))
        and not same_date((2021, 5, 5), (2020, 5, 5))
        and not same_date(may, (None, 6, 5))
    )
    assert date("5") is None and date("Mayor 5") is None and date("2014") is None
