"""Ratios of policy and sampler, and the weights that correct for them: against the oracle, and as exact expectations."""

import itertools
import math

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.core.mismatch import BOUNDS, Correction, drifted, importance_weights, log_ratios, ratios

LEVELS = tuple(BOUNDS)
CORRECTIONS = [("truncate", "token"), ("truncate", "sequence"), *(("mask", level) for level in LEVELS)]
pair = st.tuples(st.floats(-6, 0), st.floats(-6, 0))


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.lists(pair, max_size=5), min_size=1, max_size=4))
@pytest.mark.parametrize(("how", "level"), CORRECTIONS)
def test_weights_equal_the_oracle_whatever_stands_in_the_padding(rows, how, level, pad, pad_mask) -> None:
    low, high = (0.4, 1.5) if how == "mask" else (0.1, 1.5)
    new, sampler = (pad([[p[k] for p in row] for row in rows], extra=1) for k in (0, 1))
    mask = pad_mask([[True] * len(row) for row in rows], 1)
    got = importance_weights(new.requires_grad_(), sampler, mask, Correction(how, level, low, high))
    assert not got.requires_grad
    for weights, row in zip(got, rows, strict=True):
        want = reference.importance_weights([p[0] for p in row], [p[1] for p in row], how, level, low, high)
        judged = reference.mismatch_ratio([p[0] for p in row], [p[1] for p in row], level)
        if not any(math.isclose(ratio, bound, rel_tol=1e-9) for ratio in judged for bound in (low, high)):
            assert weights[: len(row)].tolist() == pytest.approx(want, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("level", LEVELS)
def test_tokens_that_do_not_count_have_no_part_in_a_responses_ratio(level) -> None:
    log_ratio = torch.tensor([[0.3, math.nan, -0.1], [0.3, -0.1, math.inf]])
    mask = torch.tensor([[True, False, True], [True, True, False]])
    found = ratios(log_ratio, mask, level)
    assert found[0, 0] == found[1, 0] and found[mask].isfinite().all()


@pytest.mark.parametrize(("how", "level"), CORRECTIONS)
def test_equal_probabilities_weigh_exactly_1_and_what_is_not_finite_shows(how, level) -> None:
    logprobs = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 4, dtype=torch.bool)
    correction = Correction(how, level, 0.5, 2.0)
    assert (importance_weights(logprobs, logprobs, mask, correction) == 1).all()
    broken = logprobs.clone()
    broken[1, 2] = -math.inf
    weights = importance_weights(logprobs, broken, mask, correction)
    assert weights[1, 2].isnan() and (weights[[0, 2]] == 1).all()
    far = importance_weights(logprobs + 500.0, logprobs, mask, correction)
    assert (far == (0.0 if how == "mask" else 2.0)).all()


@pytest.mark.parametrize(
    "correction",
    [
        Correction("none"),
        Correction("truncate", "geometric"),
        Correction("mask", "token", 2.0, 1.0),
        Correction("mask", high=0.0),
    ],
)
def test_what_makes_no_weights_is_refused(correction) -> None:
    one = torch.zeros(1, 1)
    with pytest.raises(ValueError, match="interval|no weights"):
        importance_weights(one, one, one.bool(), correction)


# All responses of two tokens over three words, under a policy and under a sampler that differs a little.
WORDS, SIZE = 3, 2
RESPONSES = torch.tensor(list(itertools.product(range(WORDS), repeat=SIZE)))
SCORES = torch.tensor([1.0, 0.2, -1.0, 0.4, 0.0, 2.0, -0.3, 0.7, 0.1], dtype=torch.float64)


def logprobs_of(first: torch.Tensor, then: torch.Tensor) -> torch.Tensor:
    """[9, 2] logprobs of every response: logits of the first word, and of the second after each first."""
    return torch.stack(
        [first.log_softmax(0)[RESPONSES[:, 0]], then.log_softmax(1)[RESPONSES[:, 0], RESPONSES[:, 1]]], dim=1
    )


def gradient_bias(size: float, correction: Correction | None) -> float:
    """Distance of the mean policy gradient over a sampler's responses from that over the policy's own, relative to this.

    Args:
        size: how far the sampler's logits are from the policy's.
        correction: None weighs nothing.
    """
    g = torch.Generator().manual_seed(3)
    theta = [torch.randn(shape, generator=g, dtype=torch.float64) for shape in ((WORDS,), (WORDS, WORDS))]
    off = [torch.randn(t.shape, generator=g, dtype=torch.float64) for t in theta]
    for t in theta:
        t.requires_grad_()
    policy = logprobs_of(*theta)
    sampler = logprobs_of(*(t.detach() + size * o for t, o in zip(theta, off, strict=True)))
    mask = torch.ones_like(RESPONSES, dtype=torch.bool)
    weights = torch.ones_like(sampler)
    if correction is not None:
        weights = importance_weights(policy, sampler, mask, correction)

    def mean(probability: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        loss = -(probability * SCORES * (weights * policy).sum(1)).sum()
        return torch.cat([part.flatten() for part in torch.autograd.grad(loss, theta, retain_graph=True)])

    exact = mean(policy.detach().sum(1).exp(), torch.ones_like(sampler))
    return float((mean(sampler.sum(1).exp(), weights) - exact).norm() / exact.norm())


def test_weighed_by_the_ratio_of_the_response_the_mean_gradient_is_exact() -> None:
    unbounded = Correction("truncate", "sequence", 0.0, 1e9)
    for size in (0.1, 1.0, 3.0):
        assert gradient_bias(size, unbounded) < 1e-12 < gradient_bias(size, None)


def test_bias_shrinks_as_the_bound_rises_and_as_the_sampler_comes_nearer() -> None:
    """Truncated, the bias is at most what is cut off, E[(ratio - high)+], so 0 once no ratio reaches the bound."""
    for how in ("truncate", "mask"):
        biases = [gradient_bias(1.0, Correction(how, "sequence", 0.0, high)) for high in (1.0, 3.0, 10.0, 100.0)]
        assert biases == sorted(biases, reverse=True) and biases[0] > 0.1 and biases[-1] < 1e-12, how
    nearer = [gradient_bias(size, None) for size in (0.4, 0.2, 0.1)]
    assert [a / b for a, b in itertools.pairwise(nearer)] == pytest.approx([2, 2], rel=0.25)  # first order


def test_ratios_of_single_tokens_leave_less_bias_than_none() -> None:
    """What remains comes from the other tokens' ratios, and is of first order as well."""
    for size in (0.1, 0.5, 1.0):
        left = gradient_bias(size, Correction("truncate", "token", 0.0, 1e9))
        assert 1e-3 < left < 0.8 * gradient_bias(size, None)


def test_a_mean_masks_responses_and_weighs_tokens_by_their_own_ratio() -> None:
    new = torch.tensor([[0.0, 0.3, -0.3], [0.4, 0.4, 0.4]])
    mask = torch.ones(2, 3, dtype=torch.bool)
    for level in ("geometric", "arithmetic"):
        weights = importance_weights(new, torch.zeros(2, 3), mask, Correction("mask", level, 0.9, 1.1))
        assert weights[0].tolist() == pytest.approx([1.0, math.exp(0.3), math.exp(-0.3)])
        assert (weights[1] == 0).all()


def test_responses_that_the_policy_has_left_lose_their_negative_advantages() -> None:
    """DeepSeek-V3.2's mask: mean of log sampler's - log policy's probability above the threshold, advantage below 0."""
    sampler = torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-1.0, -1.0], [-1.0, math.nan]])
    new = torch.tensor([[-2.0, -1.2], [-2.0, -1.2], [-1.4, -1.4], [-1.7, math.nan]])
    advantages = torch.tensor([[-1.0, -1.0], [1.0, -0.1], [-1.0, -1.0], [-1.0, 0.0]])
    mask = torch.tensor([[True, True], [True, True], [True, True], [True, False]])
    found = drifted(new, sampler, advantages, mask, threshold=0.5)
    assert found.tolist() == [[True, True], [False, True], [False, False], [True, False]]


def test_bfloat16_logprobs_are_subtracted_in_float32() -> None:
    one = torch.ones(1, dtype=torch.bfloat16)
    assert log_ratios(one, one).dtype == torch.float32
