"""Random pieces of mathematics put together: no text raises or takes long, and what reads is itself."""

import random

import pytest
from processor_time import seconds

from rewards.maths import equivalent, fallback
from rewards.maths.equivalence import tree
from rewards.maths.normalise import normalise
from rewards.maths.simplify import simplify

PIECES = r"""
0 1 2 10 1,
234 0.5 .5 1e5 1e4500 10^{900} 4. x y z n k a b C A i e \pi π \infty ∞ + - * / ^ _ ! % = < > \le \ge \ne \in \sim \approx ( ) [ ] { } \{ \} | ,
; :
. \frac \sqrt \sqrt[3] \sin \cos \ln \log \lg \binom \text{and} \text{or} \text{ cm} \text{ m} \text{if} \cup \cap \setminus \mathbb{R} \mathbb{Z} \pm \mp ^\circ
\overline \bar \dot \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} & \\ \lfloor \rfloor \left \right \cdot \times ² ³ ⁻ ₁ ½ √ ° ' " \% \$ $ € ~ \,
and or not
to for if mod cm sqrt log max min \max \pmod \boxed{ ... \ldots \mathbf{i} f(x) P( \choose \over 12:30 January (A) (mod 7) \prime ∪ ∈ ≤ × − ， （ ） degrees percent gcd cis \hat{j} ^T
""".split()  # fmt: skip


@pytest.fixture(autouse=True)
def no_fallback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallback, "applies", lambda gold: False)


@pytest.mark.parametrize("seed", range(4))
def test_no_text_raises_or_takes_long(seed) -> None:
    generator = random.Random(seed)
    equivalent(r"\sqrt{2}", r"\sqrt{3}")  # mpmath is imported
    slowest = (0.0, "", "")
    for _ in range(1500):
        texts = [
            generator.choice(["", " "]).join(generator.choices(PIECES, k=generator.randrange(1, 14))) for _ in range(2)
        ]
        if generator.random() < 0.5:
            texts[1] = texts[0].replace(generator.choice("0123xyz"), generator.choice("0123xyz"))
        slowest = max(slowest, (seconds(lambda: equivalent(*texts), limit_s=1.0), *texts))  # noqa: B023
    assert slowest[0] < 1.0, slowest


def test_what_reads_and_does_not_contradict_itself_is_itself() -> None:
    generator = random.Random(9)
    for _ in range(3000):
        text = normalise(generator.choice(["", " "]).join(generator.choices(PIECES, k=generator.randrange(1, 8))))
        node = tree(text)
        if node is not None and simplify(node) is not None and "=" not in text:
            assert equivalent(text, text) == (True, "text"), text
