"""Answers that name the right number and earn nothing: two numbers, a condition, a negation, something else made of it."""

from fractions import Fraction

import pytest
from fuzz_grammar import numbers
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rewards import Tags, grade

TWO = [
    "G or H", "H or G", "G, H", "H, G", "G and H", r"\{G,H\}", "(G,H)", "[H,G]", "G=H", "H=G", "x=G=H", "x=H=G", "x=G, y=H", "x=G, x=H", "G;H", "G|H", r"G\mid H", r"G\vee H", r"G\lor H",
    r"G\land H", r"\{G\}\cup\{H\}", r"\text{G or H}", r"G \text{ or } H", "G (or H)", "G (H)", "(G) (H)", r"G \quad H", r"G\\H", "G\nH", "G to H", r"G\sim H", r"H\approx G", r"G\approx H", r"G\ldots H",
    r"\begin{cases}G\\H\end{cases}", r"\begin{cases}G & x>0\\H & x<0\end{cases}", "G if x > 0, H otherwise", "1) G 2) H", r"x=G \text{ or } x=H", r"H \Rightarrow G", r"H \to G", r"H \implies G",
    r"G \Rightarrow H", r"H \equiv G", r"H\neq G", r"G\neq H", "H<G", "G, not H", "G out of H", "G of H", "either G or H", "not G but H", "H, or maybe G", "G? H?", r"\boxed{G} \text{ or } \boxed{H}",
]  # fmt: skip
"""Answers that must be wrong for the gold G, with another number H within them."""
ONE = [
    r"\pm G", r"\mp G", r"\ne G", r"\neq G", "<G", ">G", r"\le G", r"\ge G", "x<G", r"x \le G", r"x \ne G", "not G", r"\text{not } G", "x", "Gx", r"x_{G}", r"x^{G}", "f(G)", "G+x", "x+G", r"G+\epsilon", r"G+10^{-99}",
    "G...", r"G\ldots", r"G, \ldots", "at least G", "at most G", "more than G", "less than G", "G or more", "G or less", "minus G", "negative G", "twice G", "half of G", "G squared", "square root of G", "opposite of G",
    "one of G", "not equal to G", "anything but G", "isn't G", "G is wrong", "wrong: G", "G (wrong)", "G is not the answer", "maybe G", "G?", "?G", r"\not G", r"\cancel{G}", r"\phantom{G}", "G million", "double G", "G dozen",
    "[G-1,G+1]", "(G-1,G+1)", r"G-1<x<G+1", r"\mathbb{R}", r"\{x : x > 0\}", r"\text{all numbers}", r"G \pm 1", r"G\cdot 0", "G-G", r"G\cdot x/x+1", r"G \text{ or } G+1", r"\{G, G+1\}", r"2^{G}", r"G\cdot i", r"\log G",
]  # fmt: skip
fuzz = settings(max_examples=5, deadline=None, database=None, derandomize=True)
plain = numbers().filter(lambda pair: pair[1] > 2 and not set(", .") & set(pair[0]))


@pytest.mark.parametrize("way", TWO)
@fuzz
@given(plain, plain, st.sampled_from(["box", "tags"]))
def test_two_numbers_are_not_one(
    way: str, right: tuple[str, Fraction], other: tuple[str, Fraction], place: str
) -> None:
    assume(
        abs(right[1] - other[1]) > 1
        and right[1] != -other[1]
        and right[1] * 100 != other[1]
        and other[1] * 100 != right[1]
    )
    answer = way.replace("G", right[0]).replace("H", other[0])
    assert not _is_paid(answer, right[0], place), answer


@pytest.mark.parametrize("way", ONE)
@fuzz
@given(plain, st.sampled_from(["box", "tags"]))
def test_what_is_made_of_a_number_is_not_the_number(way: str, right: tuple[str, Fraction], place: str) -> None:
    answer = way.replace("G", right[0])
    assert not _is_paid(answer, right[0], place), answer


def _is_paid(answer: str, gold: str, place: str) -> bool:
    if place == "box":
        return grade(f"\\boxed{{{answer}}}", gold).correct
    return grade(f"<think></think><answer>{answer}</answer>", gold, tags=Tags.default()).correct


OTHERS = {
    "x^2+1": ["x^2", "x^2+1=0", "y^2+1", "x^2+1 or x", "x^3+1", "x^{2+1}", "x^21", "x^2+1+y", "x^2+1+C", "x^2+1, x", "-x^2-1", r"\pm(x^2+1)", "x^2+1>0", "O(x^2+1)", "x^2+1+10^{-50}", r"x^2+1 \mod 7"],
    "(1,2)": ["[1,2]", "(1,2]", "(1,3)", r"\{1,2\}", r"1\le x<2", "(2,1)", "(1,2),(2,1)", "(1,2,3)", "(1,2) or (2,1)", "x=2,y=1", "(y,x)=(1,2)", r"(1,2)\cup(3,4)", r"(1,2)\setminus\{1.5\}", "-(1,2)", "2(1,2)"],
    "even": ["odd", "odd or even", "even or odd", "not even", "neither even nor odd", "uneven", "even and odd", "even, odd", "even?", r"\text{not even}", "even if x>0", "almost even", "neither"],
    r"\frac{1}{3}": ["0.33", "0.333", "0.3333333333", "1/3 or 1/2", "33.3%", r"\frac{1}{3}x", r"\frac{1}{3}+\epsilon", r"-\frac13", r"\pm\frac13", r"\frac{1}{3}=0.3", r"\frac{1}{3}=\frac{1}{4}"],
    "1, 2": ["1", "2", "1,2,3", "1,1,2", "1<2", "[1,2]", "(1,2)", "12", "1.2", "1/2", "1 to 2", "1,2 or 3", "1, not 2", r"\pm 1, 2", r"\mathbb{N}", r"1,2,\ldots", r"3\pm 1"],
    "x=5": ["x=5,6", r"x\ge5", "y=5", "x=-5", r"x=\pm5", r"x\ne5", "x=5=6", "x^2=25", "x=5, y=2", "x>4", "x=5k", "x=x", "0=0", "5x", "x=5!"],
    r"\infty": [r"-\infty", r"\pm\infty", "1/0", "10^{100}", "undefined", "does not exist", r"[0,\infty)", "nan", r"\infty-\infty", r"\infty \text{ or } 0"],
    r"2\pi": ["6.28", "6.2831853", r"2\pi r", r"2\pi k", r"\pi", r"2\cdot3.14", r"2\pi \text{ or } \pi", r"-2\pi", r"2\pi+0.0001", r"\frac{44}{7}", r"2\pi i"],
    "[0, 1]": ["(0,1)", "[0,1)", "[0,2]", "0, 1", r"[0,1]\cup[2,3]", r"\{0,1\}", r"0<x<1", r"x \ge 0", "[1,0]", r"\mathbb{R}"],
    r"\{1,2,3\}": [r"\{1,2\}", r"\{1,2,3,4\}", "[1,3]", "(1,2,3)", r"\{1,2,3\}\cup\{4\}", r"\mathbb{N}", r"\{1,2,3\} \text{ or } \{1,2\}", r"\{x \mid x \le 3\}"],
    r"x \le 3": ["x<3", "x=3", "3", r"x \ge 3", r"x \le 4", r"x \le 3 \text{ and } x>0", r"0 \le x \le 3", r"y \le 3 \text{ or } x", r"x \le 3 \text{ or } x \ge 5"],
    "3+4i": ["3-4i", "3+4", "7", "7i", "5", "(3,4)", "3+4j+1", r"\pm(3+4i)", r"3\pm4i", "3+4i, 3-4i", "4+3i"],
    r"\begin{pmatrix}1&2\\3&4\end{pmatrix}": [r"\begin{pmatrix}1&3\\2&4\end{pmatrix}", "1,2,3,4", r"\begin{pmatrix}1&2&3&4\end{pmatrix}", r"2\begin{pmatrix}1&2\\3&4\end{pmatrix}", "-2"],
}  # fmt: skip
"""Gold -> what must be wrong."""


@pytest.mark.parametrize(("gold", "answer"), [(gold, answer) for gold, answers in OTHERS.items() for answer in answers])
def test_other_answers_are_other_answers(gold: str, answer: str) -> None:
    assert not grade(f"\\boxed{{{answer}}}", gold).correct
    assert grade(f"\\boxed{{{gold}}}", gold).correct
