r"""What an equal answer may leave undone: whatever the gold leaves undone, and nothing else."""

import random
from math import gcd
from pathlib import Path

import pytest

from rewards import grade
from rewards.functions.correctness import gsm8k_reward_fn, math_reward_fn
from rewards.maths import equivalent, left_undone
from rewards.maths.form import Undone

UNDONE = [
    ("23*17", "391", Undone.PRODUCT), ("(20+3)(17)", "391", Undone.PRODUCT), ("40+2", "42", Undone.SUM), (r"\frac{84}{2}", "42", Undone.QUOTIENT),
    (r"\frac{1/2}{3/4}", r"\frac23", Undone.QUOTIENT), (r"6 \cdot 7^1", "42", Undone.PRODUCT), ("2*3*\\pi", r"6\pi", Undone.PRODUCT),
    (r"7^{2023} \bmod 100", "43", Undone.REMAINDER), (r"43 \bmod 100 + 0", "43", Undone.SUM), (r"\gcd(84, 126)", "42", Undone.DIVISOR),
    (r"\lfloor (1+\sqrt2)^6 \rfloor", "197", Undone.ROUNDED), (r"\max(40+2, 41)", "42", Undone.CHOICE), ("|3-4i|", "5", Undone.ABSOLUTE),
    (r"\sqrt{1764}", "42", Undone.ROOT), ("1764^{1/2}", "42", Undone.ROOT), (r"\log_2 1024", "10", Undone.LOGARITHM), (r"2^{3^2}", "512", Undone.TOWER),
    (r"\sin 30^\circ", "0.5", Undone.CIRCULAR), (r"\sin(\arctan 2)", r"\frac{2}{\sqrt5}", Undone.CIRCULAR), (r"\tanh(\ln 3)", "0.8", Undone.HYPERBOLIC),
    ("3x+5=20", "x=5", Undone.EQUATION), ("7 > 2x+1", "x<3", Undone.INEQUALITY), ("|1-x|<3", "(-2,4)", Undone.INEQUALITY), ("e^{i\\pi}", "-1", Undone.CIRCULAR),
    (r"\{x : 2x+1<7\}", "x<3", Undone.INEQUALITY), ("(40+2, 5)", "(42, 5)", Undone.SUM), ("(a) 40+2 (b) 3", "(a) 42 (b) 3", Undone.SUM),
    (r"7^{2023} \pmod{100}", r"43 \pmod{100}", Undone.REMAINDER), ("42*1", "42", Undone.PRODUCT), (r"\frac12 \cdot 84", "42", Undone.QUOTIENT),
]  # fmt: skip
DONE = [
    ("6/4", "3/2"), ("0.5", "1/2"), (r"\frac{2}{\sqrt3+1}", r"\sqrt3-1"), (r"\sqrt{12}", r"2\sqrt3"), ("2^{10}", "1024"), ("5!", "120"),
    (r"\binom{10}{3}", "120"), (r"2\cdot 3^5", "486"), ("5+2/3", "17/3"), ("4.2*10^1", "42"), ("x=5", "5"), ("-x > -1", "x < 1"), ("|x|<2", "-2<x<2"),
    ("x^2-1", "(x-1)(x+1)"), ("(x-1)(x+1)", "x^2-1"), ("3+4=7", "7"), ("x = 5+6 = 11", "11"), (r"\frac{n(n+1)}{2}", r"\binom{n+1}{2}"),
    (r"\cos\frac{\pi}{3}+i\sin\frac{\pi}{3}", r"e^{i\pi/3}"), (r"\frac{\ln 3}{\ln 2}", r"\log_2 3"), (r"x \equiv 10 \pmod 7", r"3 \pmod 7"), (r"3 \pmod 7", "3"),
    ("2x-y+3=0", "y=2x+3"), (r"2\cdot 3\cdot 7", r"7\cdot 3\cdot 2"), ("2^{100}-1", "1267650600228229401496703205375"), ("42^{1}", "42"), ("|42|", "42"),
    (r"\frac14 \cdot 5\pi", r"\frac{5\pi}{4}"), (r"\frac{1}{2} \cdot 3\sqrt2", r"\frac{3\sqrt2}{2}"), (r"1 \times 10^5", "100000"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold", "left"), UNDONE)
def test_what_is_left_undone_is_not_paid(answer, gold, left) -> None:
    strict, loose = (grade(rf"\boxed{{{answer}}}", gold, form=form) for form in ("strict", "equivalent"))
    assert loose.correct and not strict.correct and strict.stage == "form" and left.value in strict.message
    assert grade(rf"\boxed{{{answer}}}", answer).correct, "the gold says just that"


@pytest.mark.parametrize(("answer", "gold"), DONE)
def test_what_is_a_matter_of_taste_is_paid(answer, gold) -> None:
    assert grade(rf"\boxed{{{answer}}}", gold).correct, left_undone(answer, gold)


@pytest.mark.parametrize("seed", range(20))
def test_calculations_that_come_to_a_number(seed) -> None:
    """Whatever is computed from two numbers is not paid for the result; the result is."""
    draw = random.Random(seed)
    a, b = draw.randint(11, 99), draw.randint(11, 99)
    texts = [
        (rf"{a}\cdot {b}", a * b), (f"{a} + {b}", a + b), (f"{a} - {b}", a - b), (f"({a})({b})", a * b), (rf"\frac{{{a * b}}}{{{b}}}", a),
        (rf"\gcd({a}, {b})", gcd(a, b)), (rf"{a * b} \bmod {a + b}", a * b % (a + b)), (rf"\max({a}+1, {b}+1)", max(a, b) + 1), (rf"\sqrt{{{a * a}}}", a),
        (rf"\lceil {a}.5 \rceil", a + 1), (f"{a}^2 - {b}", a * a - b),
    ]  # fmt: skip
    for text, value in texts:
        assert equivalent(text, str(value))[0], text
        assert grade(rf"\boxed{{{text}}}", str(value)).stage == "form", text
        assert grade(rf"\boxed{{{text} = {value}}}", str(value)).correct, text


def test_the_docs_name_everything_that_can_be_left_undone() -> None:
    page = " ".join((Path(__file__).parents[3] / "docs" / "rewards.md").read_text(encoding="utf-8").split())
    assert [kind for kind in Undone if kind.value not in page] == []


def test_reward_functions_have_the_switch() -> None:
    assert (
        math_reward_fn(r"\boxed{6*7}", "42").value == 0
        and math_reward_fn(r"\boxed{6*7}", "42", form="equivalent").value == 1
    )
    response = "<think>a</think><answer>6*7</answer>"
    assert (
        gsm8k_reward_fn(response, "42").value == 0.1 and gsm8k_reward_fn(response, "42", form="equivalent").value == 1
    )
