r"""Families of numbers are sets: written otherwise they stay the same, and no family is right for a gold that is none."""

import random

import pytest

from rewards.maths import equivalent

SAME = [
    (r"x=5n+2, n\in\mathbb{Z}", r"2 \pmod 5"), (r"-3 \pmod 5", r"x \equiv 2 \pmod 5"),
    (r"x\equiv 1,4 \pmod 5", r"x \equiv \pm 1 \pmod 5"), (r"x \equiv 2, 7 \pmod{10}", r"x \equiv 2 \pmod 5"),
    (r"\frac{k\pi}{2}, k\in\mathbb{Z}", r"k\pi, \frac{\pi}{2}+k\pi, k\in\mathbb{Z}"),
    (r"(-1)^k\frac{\pi}{6}+k\pi,k\in\mathbb{Z}", r"\frac{\pi}{6}+2k\pi, \frac{5\pi}{6}+2k\pi, k\in\mathbb{Z}"),
    (r"\{5k+2 \mid k \in \mathbb{Z}\}", r"2 \pmod 5"), (r"n^2, n\in \mathbb{Z}", r"(k+1)^2, k \in \mathbb{Z}"),
    (r"\arctan 2 + n\pi, n\in\mathbb{Z}", r"k\pi + \arctan 2 - \pi, k\in\mathbb{Z}"),
]  # fmt: skip
DIFFERENT = [
    (r"2^{n+1}-1, n\in\mathbb{Z}", "2^n-1"), (r"n^2, n\in\mathbb{Z}", "(n+1)^2"), (r"f(n)=2n, n\in\mathbb{Z}", "f(n)=2n+2"),
    (r"a_n=2^{n-1}, n\in\mathbb{Z}", "a_n=2^n"), (r"2k, k \ge 1000", r"x=2k, k\in\mathbb{Z}"), ("2n, n > 100", "2n"),
    (r"3 \pmod 8", r"3 \pmod 7"), ("x=2", r"x \equiv 2 \pmod 5"), ("2", r"2 \pmod 5"), ("2, 7", r"2 \pmod 5"),
    (r"2k\pi+\frac{\pi}{3}, k\in\mathbb{Z}", r"2k\pi \pm \frac{\pi}{3}, k\in\mathbb{Z}"),
    (r"3k, k\in\mathbb{Z}", r"\pi k, k\in\mathbb{Z}"), (r"k\pi, k\in\mathbb{N}", r"k\pi, k\in\mathbb{Z}"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "gold"), SAME)
def test_the_same_set(answer, gold) -> None:
    assert equivalent(answer, gold)[0] and equivalent(gold, answer)[0]


def test_an_answer_need_not_say_that_its_counter_is_whole() -> None:
    assert equivalent("x=5k+2", r"x\equiv 2 \pmod 5")[0] and equivalent("2k", r"2n, n\in\mathbb{Z}")[0]


@pytest.mark.parametrize(("answer", "gold"), DIFFERENT)
def test_another_set(answer, gold) -> None:
    assert not equivalent(answer, gold)[0]


@pytest.mark.parametrize(
    "gold", ["A", "(C)", "n+1", "1-n", "f(x)=x+1", "a_n=n", r"\mathbb{R}", "x", "7", r"2k, k\in\mathbb{Z}", "2^n"]
)
def test_no_family_is_right_everywhere(gold) -> None:
    for family in (r"k, k\in\mathbb{Z}", r"x = n, n\in\mathbb{Z}", r"\{k : k\in\mathbb{Z}\}", r"k \pmod 1"):
        assert not equivalent(family, gold)[0]


@pytest.mark.parametrize("seed", range(12))
def test_progressions_written_otherwise(seed) -> None:
    """A shifted, turned, renamed or split progression is the same set; one with another start or step is not."""
    draw = random.Random(seed)
    step, start, shift, parts = draw.randint(2, 30), draw.randint(-40, 40), draw.randint(-5, 5), draw.randint(2, 4)
    unit = draw.choice(["", r"\pi", r"\frac{\pi}{7}"])
    gold = rf"x = {start}{unit} + {step}k{unit}, k \in \mathbb{{Z}}"
    same = [
        rf"x = {start + shift * step}{unit} + {step}m{unit}, m \in \mathbb{{Z}}",
        rf"{start}{unit} - {step}n{unit}, n \in \mathbb{{Z}}",
        ", ".join(f"{start + i * step}{unit} + {parts * step}k{unit}" for i in range(parts)) + r", k \in \mathbb{Z}",
    ]
    other = [
        rf"x = {start + 1}{unit} + {step}k{unit}, k \in \mathbb{{Z}}",
        rf"x = {start}{unit} + {2 * step}k{unit}, k \in \mathbb{{Z}}",
        ", ".join(f"{start + i * step}{unit} + {parts * step}k{unit}" for i in range(parts - 1)) + r", k \in \mathbb{Z}",
        f"{start}{unit}",
    ]  # fmt: skip
    assert all(equivalent(answer, gold)[0] for answer in same)
    assert not any(equivalent(answer, gold)[0] for answer in other)
    if not unit:
        assert equivalent(rf"{start - shift * step} \pmod{{{step}}}", gold)[0]
