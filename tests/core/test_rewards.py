"""One score per response, one reward per token."""

import math
from collections.abc import Callable

import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.core.kl import token_rewards

# Per sample: its score, and tokens (kl, does it count).
samples = st.tuples(st.floats(-5, 5), st.lists(st.tuples(st.floats(-3, 3), st.booleans()), max_size=6))


@settings(deadline=None, max_examples=100)
@given(batch=st.lists(samples, min_size=1, max_size=5), kl_coef=st.sampled_from([0.0, 0.05, 1.0]))
def test_a10_rewards_equal_the_oracle(
    batch: list[tuple[float, list[tuple[float, bool]]]], kl_coef: float, pad: Callable, pad_mask: Callable
) -> None:
    kl = [[k for k, _ in row] for _, row in batch]
    masks = [[m for _, m in row] for _, row in batch]
    scores = torch.tensor([score for score, _ in batch], dtype=torch.float64)
    rewards, non_score = token_rewards(scores, pad(kl, extra=2), pad_mask(masks, 2), kl_coef)
    expected = [reference.token_rewards(s, k, m, kl_coef) for (s, _), k, m in zip(batch, kl, masks, strict=True)]
    without = [reference.token_rewards(0.0, k, m, kl_coef) for k, m in zip(kl, masks, strict=True)]
    assert torch.allclose(rewards, pad(expected, 0.0, 2), atol=1e-12)
    assert torch.allclose(non_score, pad(without, 0.0, 2), atol=1e-12)


def test_a10_score_is_added_once_on_the_last_response_token() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 1, 0]])
    rewards, _ = token_rewards(torch.tensor([1.0, 2.0, 3.0]), torch.zeros(3, 4), mask, 0.1)
    assert rewards.tolist() == [[0, 1, 0, 0], [0, 0, 0, 2], [0, 0, 3, 0]]


def test_a25_samples_without_tokens_have_no_rewards() -> None:
    rewards, non_score = token_rewards(
        torch.tensor([math.nan, 1.0]), torch.full((2, 2), math.nan), torch.zeros(2, 2, dtype=torch.bool), 0.1
    )
    assert not rewards.any() and not non_score.any()
    for shape in ((0, 3), (2, 0)):
        rewards, _ = token_rewards(torch.zeros(shape[0]), torch.zeros(shape), torch.zeros(shape), 0.1)
        assert rewards.shape == shape


def test_a31_rewards_are_float32_under_bfloat16() -> None:
    scores, kl = torch.ones(1, dtype=torch.bfloat16), torch.full((1, 1), 1e-3, dtype=torch.bfloat16)
    rewards, _ = token_rewards(scores, kl, torch.ones(1, 1), 1.0)
    assert rewards.dtype == torch.float32
    assert rewards.item() < 1.0, "1 - 0.001 is 1 in bfloat16"
