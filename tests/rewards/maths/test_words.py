"""Words around a number: those that say nothing, those that scale it, and those that make it another number."""

from itertools import product

import pytest

from rewards.maths import equivalent
from rewards.maths.words import SCALES, harmless_before, harmless_behind, label, scale

OF_IT = "the triple,a third,a multiple,a factor,the sum of digits,the negation,the divisors,the square,the logarithm,the digits,the sum,the successor,twice".split(
    ","
)
DONE = "doubled,tripled,halved,squared,cubed,inverted,reversed,negated,multiplied,divided,subtracted,times two,or more,at most".split(
    ","
)
CALLS = "negate square double half f sum digits reverse".split()
LABELS = [
    "twice the answer",
    "half the answer",
    "double",
    "the answer squared",
    "not the answer",
    "the opposite",
    "square",
]


@pytest.mark.parametrize("number", ["42", "-7", r"\frac{3}{4}", "12.5"])
def test_a_number_that_is_said_to_be_another_is_not_this_one(number) -> None:
    texts = [f"{words} of {number}" for words in OF_IT] + [f"{number} {words}" for words in DONE]
    texts += [f"{name}({number})" for name in CALLS] + [
        f"{n}{sign} {number}" for n, sign in product(LABELS, (" =", ":"))
    ]
    texts += [f"the {number}nd Fibonacci number", f"double {number}", f"the square {number}"]
    for text in texts:
        assert not equivalent(text, number)[0], text


@pytest.mark.parametrize("number", ["42", "-7", "12.5"])
def test_words_that_state_a_number(number) -> None:
    for before, behind in product(
        ("", "The total is", "a total of", "She paid", "The area of the square is"), ("", "tiles", "red jelly beans")
    ):
        assert equivalent(f"{before} {number} {behind}", number)[0], (before, behind)


@pytest.mark.parametrize(("word", "factor"), SCALES.items())
def test_a_scale_multiplies(word, factor) -> None:
    assert equivalent(f"7 {word}", str(7 * factor))[0] and not equivalent(f"7 {word}", "7")[0] or word == "percent"
    assert scale(f"{word} dollars") == (factor, "dollars") and scale("dollars")[0] == 1


def test_scales_beside_units() -> None:
    assert equivalent("42 thousand dollars", r"\$42,000")[0] and equivalent("3 quarters", "0.75")[0]
    assert equivalent("42 per mille", "0.042")[0] and not equivalent("42 per mille", "42")[0]


LISTS = [
    ("maximum 5, minimum -3", "maximum -3, minimum 5"), ("length 3 and width 5", "length 5 and width 3"),
    ("boys 3, girls 5", "boys 5, girls 3"), ("the slope is 5, the intercept is 3", "the slope is 3, the intercept is 5"),
    ("3 boys, 5 girls", "boys 5, girls 3"),
]  # fmt: skip


@pytest.mark.parametrize(("gold", "swapped"), LISTS)
def test_labels_go_with_their_values(gold, swapped) -> None:
    assert equivalent(gold, gold)[0] and not equivalent(swapped, gold)[0] and not equivalent(gold, swapped)[0]
    turned = ", ".join(reversed(gold.replace(" and ", ", ").split(", ")))
    assert equivalent(turned, gold)[0]


@pytest.mark.parametrize(
    ("a", "b"), [("(a)", "(b)"), ("a)", "b)"), ("(i)", "(ii)"), ("(1)", "(2)"), ("part (a)", "part (b)")]
)
def test_parts_are_compared_in_order(a, b) -> None:
    gold = "(a) 3 (b) 5"
    for between in (" ", ", ", "; ", " and ", "\n"):
        assert equivalent(f"{a} 3{between}{b} 5", gold)[0] and not equivalent(f"{a} 5{between}{b} 3", gold)[0]
    assert equivalent("3, 5", gold)[0] and not equivalent("5, 3", gold)[0]
    assert not any(equivalent(text, gold)[0] for text in ("15ab", "15", "3", "(a) 3", "(a) 3 (b) 5 (c) 7", "30"))


def test_names_of_angles_have_an_order() -> None:
    assert equivalent(r"\angle CAB", r"\angle BAC")[0] and not equivalent(r"\angle ABC", r"\angle BAC")[0]


def test_a_radius_is_not_the_line() -> None:
    assert not equivalent(r"\mathbb{R}", "v = R")[0] and not equivalent("all real numbers", "R")[0]
    assert equivalent("v = R", "R")[0] and equivalent("all real numbers", r"\mathbb{R}")[0]


def test_what_tells_parts_apart() -> None:
    assert label("The maximum value is") == {"maximum"} and not label("the answer is") and harmless_before("a total of")
    assert harmless_behind("th place") and not harmless_behind("th number")
