"""Random pieces of mathematics put together: no text raises or takes long, and what reads is itself."""

import random

import pytest
from hostile_texts import PIECES
from processor_time import seconds

from rewards.maths import equivalent, fallback
from rewards.maths.equivalence import tree
from rewards.maths.normalise import normalise
from rewards.maths.simplify import simplify


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
