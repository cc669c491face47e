"""Formatting around an answer is removed, its content kept."""

import pytest
from processor_time import seconds

from rewards.maths.normalise import MAX_ANSWER_CHARACTERS, canonical, normalise


@pytest.mark.parametrize(
    ("text", "tidied"),
    [
        (" 5 ", "5"), ("$5$", "5"), ("$$5$$", "5"), (r"\(5\)", "5"), (r"\[5\]", "5"), ("**5**", "5"), ("`5`", "5"),
        ('"5"', "5"), ("5.", "5"), ("5,", "5"), (r"5\\", "5"), (r"\text{5}", "5"), (r"\boxed{\text{5}}", "5"),
        (r"\mathbf{x}", "x"), ("**$\\boxed{5}$.**", "5"),
        (r"\left( 1,\, 2 \right)", "( 1, 2 )"), (r"\dfrac{1}{2}", r"\frac{1}{2}"), (r"1{,}234", "1,234"),
        (r"1,\!234", "1,234"), ("−5", "-5"), ("（1，2）", "(1,2)"), ("5％", "5%"), ("5\u00a0cm", "5 cm"),
        ("x\u200b", "x"), (r"\displaystyle 5", "5"), (r"\color{blue}5", "5"), (r"\textcolor{red}{5}", "{5}"),
        ("]1, 2[", "(1, 2)"), (r"[3, \infty[", r"[3, \infty)"),
        (r"60\frac{\text{km}}{\text{h}}", r"60\text{km/h}"), ("x_{}", "x_"),
        ("\times 2".strip(" "), r"\times 2"), ("\\\\sqrt{2}", r"\sqrt{2}"),
        ("1, 2, ...", "1, 2, ..."), ("{1, 2}", "{1, 2}"), (r"\{1\}", r"\{1\}"), (r"[1,2],[3,4]", "[1,2],[3,4]"),
        ("$1$ and $2$", "$1$ and $2$"), (r"\text{a} + \text{b}", r"\text{a} + \text{b}"),
        (r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"), ("", ""), ("$", "$"),
    ],
)  # fmt: skip
def test_tidy(text, tidied) -> None:
    assert normalise(text) == tidied


def test_tidying_twice_changes_nothing() -> None:
    for text in ("**$\\boxed{\\text{5}}$.**", r"\left[ \frac{1}{2}, \infty \right[", "$1$ and $2$."):
        assert normalise(normalise(text)) == normalise(text)


def test_what_is_too_long_becomes_nothing() -> None:
    assert normalise("1" * (MAX_ANSWER_CHARACTERS + 1)) == "" and normalise("1" * MAX_ANSWER_CHARACTERS) != ""


@pytest.mark.parametrize(
    "text",
    [
        "{" * 2000,
        "$" * 2000,
        r"\text{" * 300,
        "[1,2[" * 400,
        "[" + r"\infty" * 300 + ",",
        r"{\over" * 300,
        "**" * 1000,
        " ." * 1000,
        "\\" * 2000,
        r"\color{" * 280,
    ],
)
def test_tidying_takes_no_time(text) -> None:
    assert seconds(lambda: normalise(text), limit_s=0.2) < 0.2


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x + 1", "x+1", True), ("Yes", "yes", True), ("(B)", "B", True), (r"\text{cm}", "cm", True),
        ("1, 2", "1,2", True), ("2 3", "23", False), ("1, 234", "1,234", False), ("3 1/2", "31/2", False),
        ("AB", "ab", False), ("x", "X", False), ("5 cm", "5cm", True), ("1 , 2", "1,2", True),
    ],
)  # fmt: skip
def test_canonical(one, other, same) -> None:
    assert (canonical(one) == canonical(other)) is same
