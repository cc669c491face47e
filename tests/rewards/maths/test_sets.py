"""Sets of real numbers: what describes them, and the algebra of intervals."""

import pytest

from rewards.maths.parser import parse
from rewards.maths.sets import (
    NoSetError,
    compare_ends,
    complement,
    intersection,
    is_plainly_a_set,
    real_set,
    same_set,
    union,
)


def described(text: str):
    return real_set(parse(text))


@pytest.mark.parametrize(
    ("text", "intervals"),
    [
        ("x < 3", r"(-\infty, 3)"), ("3 >= x", r"(-\infty, 3]"), ("-1 <= x < 2", "[-1, 2)"),
        ("2x - 1 > 5", r"(3, \infty)"),
        ("1 - x/2 >= 0", r"(-\infty, 2]"), ("x != 2", r"(-\infty,2) \cup (2,\infty)"), ("|2x - 1| <= 3", "[-1, 2]"),
        ("|x| > 1", r"(-\infty,-1) \cup (1,\infty)"),
        ("x > 0, x < 5", "(0, 5)"), ("x < 0 or x > 5", r"(-\infty,0) \cup (5,\infty)"), (r"x \in [0, 1]", "[0,1]"),
        (r"\{x \mid x > 0\}", r"(0, \infty)"), (r"\{x \in [0, 2] \mid x > 1\}", "(1, 2]"),
        (r"\mathbb{R}", r"(-\infty,\infty)"),
        ("[1, 3] \\cap [2, 4]", "[2, 3]"), (r"[1,2] \cup [2,3]", "[1,3]"),
        (r"[1,2) \cup (2,3]", r"[1,3] \setminus \{2\}"),
        (r"(-\infty, \infty) \setminus [0,1]", r"x < 0 \text{ or } x > 1"),
        (r"[0, \infty]", r"[0, \infty)"), (r"(\sqrt{2}, \pi)", r"(\sqrt{2}, \pi)"),
    ],
)  # fmt: skip
def test_what_describes_the_same_set(text, intervals) -> None:
    assert same_set(described(text), described(intervals))


@pytest.mark.parametrize(
    "text", ["x^2 < 4", "x < y < z < w", "5", r"\text{blue}", "(1, 2, 3)", r"\{x \mid x^2 = 2x\}", "0x < 1"]
)
def test_what_describes_no_set_that_we_know(text) -> None:
    with pytest.raises(NoSetError):
        described(text)


def test_an_empty_set_has_no_intervals() -> None:
    assert described(r"\emptyset") == described(r"(1, 2) \cap [2, 3]") == () and len(described("[1, 1]")) == 1


@pytest.mark.parametrize(
    ("text", "plainly"),
    [
        ("[1, 2)", True),
        ("(1, 2)", False),
        (r"(1, \infty)", True),
        ("x < 1", True),
        ("x = 1", False),
        ("[1, 2]", True),
        ("[1, 2, 3]", False),
        ("[[1,2],[3,4]]", False),
        (r"A \cup B", True),
        ("1, 2", False),
    ],
)
def test_a_pair_may_be_a_point(text, plainly) -> None:
    assert is_plainly_a_set(parse(text)) is plainly


SAMPLES = [
    described(t)
    for t in (
        r"(-\infty, 0)",
        "[0, 1]",
        "(0, 1)",
        "[1, 2)",
        r"[0,1] \cup (2, 3]",
        r"\mathbb{R}",
        r"\emptyset",
        r"\{1\}",
        r"(\sqrt{2}, \infty)",
    )
]


@pytest.mark.parametrize("a", SAMPLES)
def test_laws_of_sets(a) -> None:
    whole = described(r"\mathbb{R}")
    assert same_set(complement(complement(a)), a)
    assert same_set(union(a + complement(a)), whole)
    assert intersection(a, complement(a)) == ()
    for b in SAMPLES:
        assert same_set(union(a + b), union(b + a)) and same_set(intersection(a, b), intersection(b, a))
        assert same_set(complement(union(a + b)), intersection(complement(a), complement(b)))


def test_ends_are_put_in_order() -> None:
    ends = [parse(t) for t in (r"-\infty", r"-\sqrt{2}", "0", "1e-30", "1.4142", r"\sqrt{2}", "3/2", r"\pi", r"\infty")]
    for i, a in enumerate(ends):
        for j, b in enumerate(ends):
            assert compare_ends(a, b) == (i > j) - (i < j)
    with pytest.raises(NoSetError):
        compare_ends(parse("x"), parse("1"))
