"""The oracle against itself: its analytic gradients are slopes of its losses, and small cases done by hand."""

import math
import random

import pytest
import reference


@pytest.mark.parametrize("seed", range(5))
def test_a18_a19_gradients_are_slopes(seed: int) -> None:
    rng, h = random.Random(seed), 1e-6
    for _ in range(50):
        new, old, advantage = rng.uniform(-2, 0), rng.uniform(-2, 0), rng.uniform(-2, 2)
        limits = (0.2, 0.3, rng.choice([None, 2.0]))
        ends = [reference.policy_loss(new + d, old, advantage, *limits) for d in (-h, h)]
        gradient = reference.policy_gradient(new, old, advantage, *limits)
        assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(gradient, abs=1e-5)
        clip = rng.choice([None, 0.2])
        ends = [reference.value_loss(new + d, old, advantage, clip) for d in (-h, h)]
        assert (ends[1] - ends[0]) / (2 * h) == pytest.approx(
            reference.value_gradient(new, old, advantage, clip), abs=1e-5
        )


def test_a1_logprobs_by_hand() -> None:
    logits = [[0.0, 0.0], [math.log(3.0), 0.0], [5.0, 5.0]]
    assert reference.token_logprobs(logits, [0, 1, 0], prompt_length=1) == pytest.approx(
        [math.log(0.5), math.log(0.75)]
    )
    assert reference.entropy([0.0, 0.0]) == pytest.approx(math.log(2))
    assert reference.token_values([0.1, 0.2, 0.3], [0, 1, 0], prompt_length=1) == [0.1, 0.2]


def test_a11_gae_by_hand() -> None:
    """delta = (0 + 0.5 * 4 - 2, 1 - 4) = (0, -3); A = (0 + 0.25 * -3, -3)."""
    assert reference.gae([0.0, 9.0, 1.0], [2.0, 9.0, 4.0], [True, False, True], 0.5, 0.5) == [-0.75, 0.0, -3.0]


def test_a20_aggregate_by_hand() -> None:
    rows, masks = [[1.0, 9.0], [2.0, 4.0], [7.0]], [[True, False], [True, True], [False]]
    assert reference.aggregate(rows, masks, "token_mean") == pytest.approx(7 / 3)
    assert reference.aggregate(rows, masks, "sequence_mean") == pytest.approx((1 + 3) / 2)
    assert reference.aggregate(rows, masks, "constant", 10) == pytest.approx(7 / 20)
