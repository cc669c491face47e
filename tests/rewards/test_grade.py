"""Verdicts: what is right, what is wrong, and that nothing is paid for hedging or repeating the question."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processor_time import seconds

from rewards import Tags, check_gold, equivalent, gold_from_gsm8k, grade
from rewards.echo import MAX_QUESTION_CHARACTERS, echoes
from rewards.maths.compare import same_answer
from rewards.maths.equivalence import tree
from rewards.maths.literals import parse_number
from rewards.maths.normalise import normalise

TAGS = Tags.default()


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("42", "42"), ("42.", "42"), ("42.0", "42"), (" 1,234 ", "1234"), ("$1,234.50", "1234.5"), ("-3", "-3"),
        ("1/2", "0.5"), (r"\frac{1}{2}", "1/2"), (r"\dfrac12", "0.5"), ("1 1/2", "1.5"), (r"1\frac{1}{2}", "3/2"),
        ("50%", "0.5"), (r"50\%", "1/2"), ("1e3", "1000"), (r"3\times10^{4}", "30000"), ("1e-7", "0.0000001"),
        ("42 dollars", "42"), ("42", "42 km"), (r"90^\circ", "90"), (r"\text{42}", "42"), ("$42$", "42"), ("x = 5", "5"),
        ("(1, 2)", "(1,2)"), ("1, 2, 3", "3,2,1"), (r"\{1,2\}", r"\{2, 1\}"), ("(0.5, 2)", r"(\frac12,2)"), ("B", "(B)"),
        ("Blue", "blue"), ("\u22123", "-3"), (r"x^2 + 1", "x^2+1"),
    ],
)  # fmt: skip
def test_equal(answer, gold) -> None:
    assert equivalent(answer, gold)[0], (answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("41", "42"), ("0.333", "1/3"), ("1e-7", "2e-7"), ("1e400", "1"), ("1,2,2", "1,2"), ("42 km", "42 cm"), ("41=42", "42"),
        ("1/2004!", "1/2006!"), ("1/2^99", "1/2^98"), ("41 or 42", "42"), ("not 42", "42"), ("40,41,42", "42"), ("[0,100]", "42"),
        ("(1,2]", "(1,2)"), ("(2,1)", "(1,2)"), ("", "42"), ("10**9**9", "1"), ("42 42", "42"), ("1e99999999999", "1e99999999998"),
    ],
)  # fmt: skip
def test_different(answer, gold) -> None:
    assert not equivalent(answer, gold)[0], (answer, gold)


@given(st.fractions(max_denominator=10**6))
def test_every_fraction_is_read_exactly(number: Fraction) -> None:
    assert parse_number(f"{number.numerator}/{number.denominator}") == number
    assert parse_number(f"\\frac{{{number.numerator}}}{{{number.denominator}}}") == number


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**12), max_value=10**12, places=6))
def test_every_decimal_is_read_exactly(number) -> None:
    assert parse_number(f"{number:f}") == Fraction(number)
    assert parse_number(f"{number:,f}") == Fraction(number)


@given(st.text(max_size=300), st.text(max_size=60))
def test_no_text_breaks_the_grader(response, gold) -> None:
    for tags in (None, TAGS):
        assert grade(response, gold, tags=tags).status in ("correct", "wrong", "no_answer", "bad_gold")


@pytest.mark.parametrize(
    ("response", "status"),
    [
        ("<think>6*7</think><answer>42</answer>", "correct"),
        ("<think>6*7</think><answer>42</answer>  \n ", "correct"),  # A34
        (r"<think>6*7</think><answer>\boxed{42}</answer>", "correct"),
        ("<think>6*7</think><answer>41</answer>", "wrong"),
        (r"<think>\boxed{42}</think>", "no_answer"),
        ("<think><answer>42</answer></think>", "no_answer"),
        ("<think>so <answer>42</answer>", "no_answer"),
        ("42", "no_answer"),
        ("<think>a</think><answer></answer>", "no_answer"),
        ("<think>a</think><answer>41</answer><answer>42</answer>", "no_answer"),
        (r"<think>a</think><answer>\boxed{41}\boxed{42}</answer>", "wrong"),
        ("<think>a</think><answer>41 or 42</answer>", "wrong"),
    ],
)
def test_a34_the_answer_counts_between_the_answer_tags_only(response, status) -> None:
    assert grade(response, "42", tags=TAGS).status == status


def test_a33_other_tags_are_honoured() -> None:
    config = {
        "think_start": {"text": "[T]"}, "think_end": {"text": "[/T]"}, "answer_start": "<<", "answer_end": {"text": ">>"},
    }  # fmt: skip
    tags = Tags.from_config(config)
    assert grade("[T]x[/T]<<42>>", "42", tags=tags).correct
    assert grade("<think>x</think><answer>42</answer>", "42", tags=tags).status == "no_answer"
    assert tags.is_well_formed("[T]x[/T] <<42>>\n") and not TAGS.is_well_formed("[T]x[/T]<<42>>")


@pytest.mark.parametrize(
    ("response", "formed"),
    [
        ("<think>a</think><answer>b</answer>", True),
        (" <think>a</think>\n<answer>b</answer>\n", True),
        ("<think>a</think><answer>b</answer>!", False),
        ("hm <think>a</think><answer>b</answer>", False),
        ("<think>a</think> so <answer>b</answer>", False),
        ("<think>a</think><think>a</think><answer>b</answer>", False),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a</think><answer>b", False),
    ],
)
def test_a34_what_is_well_formed(response, formed) -> None:
    assert TAGS.is_well_formed(response) is formed


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"first \boxed{1}, then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("5 + 5 = 10\n#### 10", "10"),
        ("The answer is $1,200.", "$1,200"),
        ("we get 3 and then 12", "12"),
        ("no number here", None),
        (r"\boxed{}", None),
        ("<think>the answer is 7</think> 8", "8"),
        ("<think>the answer is 7", None),
    ],
)
def test_extraction_without_tags(response, answer) -> None:
    assert grade(response, "0").answer == answer


def test_gold_answers() -> None:
    assert gold_from_gsm8k("2+2=4\n#### 4") == "4" and gold_from_gsm8k("4") == "4"
    assert check_gold("4") and check_gold(r"\frac{1}{2}") and check_gold("blue")
    assert not check_gold("") and not check_gold("  ") and not check_gold("$$")
    assert grade("4", "").status == "bad_gold" and grade("4", None).status == "bad_gold"


ECHOES = [
    ("6 * 7", "What is 6 * 7?"), ("6*7", r"What is $6 \times 7$?"), (r"6 \cdot 7", "Compute 6×7."),
    ("x^2 - 1", "Factor $x^2-1$."), (r"\frac{3}{4} + \frac{1}{2}", r"Find $\frac{3}{4}+\frac{1}{2}$."),
    ("n = 6 * 7", "What is 6 * 7?"), ("6 * 7 = 6 * 7", "What is 6 * 7?"),
    (r"\sqrt{72}", r"Simplify $\sqrt{72}$."), ("5!", "What is 5!?"), ("2^{10}", "Find 2^{10}."),
    (r"\left(1+i\right)^2", "What is $(1+i)^2$?"), ("6 x 7", "What is 6 x 7?"), ("$6*7$", "6 * 7 ="),
    ("7 * 6", "What is 6 * 7?"), ("-1 + x^2", "Factor $x^2-1$."), ("|4i - 3|", "What is $|3-4i|$?"), ("17*23", "What is 23 x 17?"),
    (r"\gcd(12, 8)", r"Find $\gcd(8,12)$."), ("7 > 2x + 1", "Solve $2x+1 < 7$."),
    ("84/2", "What is 84/2?"), (r"\frac{6}{8}", r"Reduce $\frac{6}{8}$."),
    (r"3\times10^4", r"Write $3 \times 10^4$ in full."), ("3 1/2", "Write 3 1/2 as a fraction."),
]  # fmt: skip
ANSWERS = [
    ("42", "What is 6 * 7?"), ("6 * 7 = 42", "What is 6 * 7?"), ("2 * 21", "What is 6 * 7?"),
    ("-3", "Which is smaller, -3 or 3?"), ("7", "What is 6 * 7 / 6?"), ("(x-1)(x+1)", "Factor x^2 - 1."),
    ("x", "Solve for x."), ("", "What?"), ("1/2", "A coin falls 1/2 of the time."),
    (r"\frac{\pi}{2}", r"$0 < x < \frac{\pi}{2}$"), ("π/2", "0 < x < π/2"), (r"\pi", r"in terms of $\pi$"),
    ("6 * 7", None), ("6 * 7", ""), ("blue", "Is it blue?"), ("(1, 2)", "Which point, (1, 2) or (2, 1)?"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "question"), ECHOES)
def test_an_echo(answer, question) -> None:
    assert echoes(answer, question)


@pytest.mark.parametrize(("answer", "question"), ANSWERS)
def test_no_echo(answer, question) -> None:
    assert not echoes(answer, question)


def test_an_echo_is_wrong_unless_the_gold_says_just_that() -> None:
    question = "Factor $x^2 - 1$."
    for answer in ("x^2-1", "-1+x^2"):
        assert grade(rf"\boxed{{{answer}}}", "(x-1)(x+1)", question=question).stage == "echo"
    assert grade(r"\boxed{x^2-1}", "(x-1)(x+1)").correct
    assert grade(r"\boxed{(x-1)(x+1)}", "(x-1)(x+1)", question=question).correct
    assert grade(r"\boxed{x^2-1}", "x^2-1", question="Expand $(x-1)(x+1)$; is it $x^2-1$?").correct


def test_long_questions_take_no_time() -> None:
    for piece in ("6 * 7 ", "\\", "{", "x ", "\\left"):
        assert seconds(lambda: echoes("6*8", piece * MAX_QUESTION_CHARACTERS), limit_s=0.2) < 0.2  # noqa: B023


@pytest.mark.parametrize(
    "form",
    [
        "{} hours",
        "{} Kilometers",
        "{} dollars",
        "{} percent",
        "{} degrees",
        "{} radians",
        "${}",
        "{}%",
        r"{}\%",
        "{} %",
        "${} hours",
        "${}%",
    ],
)
def test_a_plain_amount_is_compared_with_a_whole_number_as_its_tree_is(form: str) -> None:
    """Also where the tree is not made (`_same_whole`): the words of a unit go without saying, degrees and percents are numbers too."""
    golds = "42", "42.0", "0", "1", "1234", "042", "50"
    for number in "1 100 42 41 4200 042 0 0.42 42.0 42.5 1,234 1,234.00 123,400 1,234.5 4.2 .42 5,0 0.5 5000".split():
        answer = form.format(number)
        for gold in golds:
            trees = tree(normalise(answer)), tree(normalise(gold))
            same = None not in trees and same_answer(*trees)
            assert equivalent(answer, gold)[0] == same, (answer, gold)
