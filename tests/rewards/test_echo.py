"""Answers that only repeat the question earn nothing; an answer that is worked out does."""

import time

import pytest

from rewards import grade
from rewards.echo import MAX_QUESTION_CHARACTERS, echoes

ECHOES = [
    ("6 * 7", "What is 6 * 7?"), ("6*7", r"What is $6 \times 7$?"), (r"6 \cdot 7", "Compute 6×7."),
    ("x^2 - 1", "Factor $x^2-1$."), (r"\frac{3}{4} + \frac{1}{2}", r"Find $\frac{3}{4}+\frac{1}{2}$."),
    ("n = 6 * 7", "What is 6 * 7?"), ("6 * 7 = 6 * 7", "What is 6 * 7?"),
    (r"\sqrt{72}", r"Simplify $\sqrt{72}$."), ("5!", "What is 5!?"), ("2^{10}", "Find 2^{10}."),
    (r"\left(1+i\right)^2", "What is $(1+i)^2$?"), ("6 x 7", "What is 6 x 7?"), ("$6*7$", "6 * 7 ="),
    ("84/2", "What is 84/2?"), (r"\frac{6}{8}", r"Reduce $\frac{6}{8}$."),
    (r"3\times10^4", r"Write $3 \times 10^4$ in full."), ("3 1/2", "Write 3 1/2 as a fraction."),
]  # fmt: skip
ANSWERS = [
    ("42", "What is 6 * 7?"), ("6 * 7 = 42", "What is 6 * 7?"), ("7 * 6", "What is 6 * 7?"),
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
    assert grade(r"\boxed{x^2-1}", "(x-1)(x+1)", question=question).stage == "echo"
    assert grade(r"\boxed{x^2-1}", "(x-1)(x+1)").correct
    assert grade(r"\boxed{(x-1)(x+1)}", "(x-1)(x+1)", question=question).correct
    assert grade(r"\boxed{x^2-1}", "x^2-1", question="Expand $(x-1)(x+1)$; is it $x^2-1$?").correct


def test_long_questions_take_no_time() -> None:
    start = time.thread_time()
    for piece in ("6 * 7 ", "\\", "{", "x ", "\\left"):
        echoes("6*8", piece * MAX_QUESTION_CHARACTERS)
    assert time.thread_time() - start < 1.0
