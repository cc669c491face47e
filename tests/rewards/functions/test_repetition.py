"""`repetition_penalty_fn`: its formula, its time, its arguments."""

import pytest
from processor_time import seconds

from rewards import UserError
from rewards.functions import repetition_penalty_fn


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("text", ["a b c d e f", "a a a a a a", "a b a b a b", "A b a B", "a", "", "x " * 5])
def test_repetition_is_one_minus_unique_over_total(text, size) -> None:
    words = text.lower().split()
    grams = [tuple(words[i : i + size]) for i in range(len(words) - size + 1)]
    expected = -2.0 * (1 - len(set(grams)) / len(grams)) if grams else 0.0
    assert repetition_penalty_fn(text, ngram_size=size, max_penalty=-2.0) == pytest.approx(expected)


def test_repetition_takes_linear_time() -> None:
    assert repetition_penalty_fn("ha " * 300_000) == pytest.approx(-1, abs=1e-4)
    for text in ("ha " * 300_000, " ".join(map(str, range(300_000)))):
        assert seconds(lambda: repetition_penalty_fn(text), limit_s=3) < 3  # noqa: B023


def test_repetition_checks_its_arguments() -> None:
    for wrong in ({"ngram_size": 0}, {"ngram_size": 1.5}, {"max_penalty": 0.1}, {"max_penalty": float("nan")}):
        with pytest.raises(UserError, match="repetition_penalty_fn"):
            repetition_penalty_fn("a b", **wrong)
