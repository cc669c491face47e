"""Rewards that look at the length, against their formulas, and A27: truncation never pays."""

import math

import pytest

from rewards import UserError
from rewards.functions import cosine_length_fn, length_penalty, soft_overlong_fn

RIGHT, WRONG = "<think>6*7</think><answer>42</answer>", "<think>6*7</think><answer>41</answer>"


def overlong(length: int, finished: bool = True, limit: int = 100, cache: int = 20) -> float:
    return soft_overlong_fn("...", range(length), finished, max_tokens=limit, cache_tokens=cache)


def cosine(response: str, length: int, finished: bool = True, **values) -> float:
    return cosine_length_fn(response, "42", range(length), finished, max_tokens=100, **values).value


def penalty(length: int, finished: bool = True) -> float:
    return length_penalty("...", range(length), finished, max_tokens=100)


def test_soft_overlong_is_equation_13() -> None:
    for limit, cache in ((100, 20), (100, 100), (7, 1)):
        for length in range(1, 2 * limit):
            if length <= limit - cache:
                expected = 0.0
            elif length <= limit:
                expected = ((limit - cache) - length) / cache
            else:
                expected = -1.0
            assert overlong(length, limit=limit, cache=cache) == pytest.approx(expected)


@pytest.mark.parametrize("shaped", [overlong, penalty])
def test_a27_longer_is_never_better_and_truncation_is_the_worst(shaped) -> None:
    scores = [shaped(length) for length in range(1, 150)]
    assert scores == sorted(scores, reverse=True)
    for length in range(1, 150):
        assert shaped(length, finished=False) <= min(scores[:length])


@pytest.mark.parametrize("response", [RIGHT, WRONG])
def test_a27_truncation_is_the_worst_for_the_cosine_too(response) -> None:
    scores = [cosine(response, length) for length in range(1, 150)]
    for length in range(1, 150):
        assert cosine(response, length, finished=False) <= min(scores[:length])


def test_cosine_is_the_papers() -> None:
    # CosFn(t, T, low, high) = low + (high - low) (1 + cos(pi t / T)) / 2, from r_0 at t = 0 to r_L at t = T
    for length in range(1, 100):
        wave = (1 + math.cos(math.pi * length / 100)) / 2
        assert cosine(RIGHT, length) == pytest.approx(1 + (2 - 1) * wave)
        assert cosine(WRONG, length) == pytest.approx(0 + (-10 - 0) * wave)
    assert cosine(RIGHT, 100) == cosine(WRONG, 100) == -10


def test_cosine_rewards_short_when_right_and_long_when_wrong() -> None:
    right, wrong = [cosine(RIGHT, n) for n in range(1, 100)], [cosine(WRONG, n) for n in range(1, 100)]
    assert right == sorted(right, reverse=True) and len(set(right)) == 99
    assert wrong == sorted(wrong) and len(set(wrong)) == 99
    assert min(right) > max(wrong)


def test_without_tokens_or_gold_they_do_not_apply() -> None:
    assert soft_overlong_fn("text", (), max_tokens=100, cache_tokens=20) is None
    assert length_penalty("text", (), max_tokens=100) is None
    assert cosine_length_fn(RIGHT, "42", (), max_tokens=100).value is None
    assert cosine_length_fn(RIGHT, None, (1,), max_tokens=100).value is None
    assert length_penalty("", (), max_tokens=100) == 0 and penalty(50) == -0.5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: soft_overlong_fn("a", (1,)), r"soft_overlong_fn needs max_tokens.*reward_options"),
        (lambda: soft_overlong_fn("a", (1,), max_tokens=10), "needs cache_tokens"),
        (lambda: overlong(1, limit=10, cache=11), r"cache_tokens \(11\) must be at most max_tokens \(10\)"),
        (lambda: overlong(1, limit=0), "max_tokens must be a whole number of tokens from 1, not 0"),
        (lambda: overlong(1, cache=-1), "cache_tokens must be a whole number of tokens from 1, not -1"),
        (lambda: overlong(1, limit=True), "not True"),
        (lambda: overlong(1, limit=10.5), "not 10.5"),
        (lambda: length_penalty("a", (1,), max_tokens=10, max_penalty=1), "at most 0, not 1"),
        (lambda: cosine(RIGHT, 1, correct_short=0), "must fall in this order"),
        (lambda: cosine(RIGHT, 1, exceed_penalty=0), "must fall in this order"),
        (lambda: cosine(RIGHT, 1, wrong_short="-10"), "wrong_short must be a finite number"),
        (lambda: cosine_length_fn(RIGHT, "42", (1,)), "cosine_length_fn needs max_tokens"),
    ],
)
def test_mistakes_are_named(call, message) -> None:
    with pytest.raises(UserError, match=message):
        call()
