"""The three estimates of the divergence."""

import math

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.core.kl import LEAST_KL_COEF, SUITED, KLKind, KLPlace, adapted_kl_coef, kl_estimate

KINDS: tuple[KLKind, ...] = ("k1", "k2", "k3", "k3_weighted")
logits = st.lists(st.floats(-4, 4), min_size=5, max_size=5)


def distributions(p_logits: list[float], q_logits: list[float]) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Log-probabilities of two categorical distributions, and KL(p || q) exactly."""
    log_p = torch.tensor(reference.log_softmax(p_logits), dtype=torch.float64)
    log_q = torch.tensor(reference.log_softmax(q_logits), dtype=torch.float64)
    exact = sum(math.exp(a) * (a - b) for a, b in zip(log_p.tolist(), log_q.tolist(), strict=True))
    return log_p, log_q, exact


@settings(deadline=None, max_examples=100)
@given(p_logits=logits, q_logits=logits)
def test_a14_k1_and_k3_are_unbiased(p_logits: list[float], q_logits: list[float]) -> None:
    """Their expectation under the policy, summed over every word, is the divergence."""
    log_p, log_q, exact = distributions(p_logits, q_logits)
    for kind in ("k1", "k3"):
        expectation = (log_p.exp() * kl_estimate(log_p, log_q, kind)).sum().item()
        assert expectation == pytest.approx(exact, abs=1e-10)


@settings(deadline=None, max_examples=100)
@given(p_logits=logits, q_logits=logits)
def test_a14_signs(p_logits: list[float], q_logits: list[float]) -> None:
    log_p, log_q, exact = distributions(p_logits, q_logits)
    assert exact >= -1e-12
    assert torch.equal(kl_estimate(log_p, log_q, "k1") > 0, log_p > log_q)
    assert (kl_estimate(log_p, log_q, "k2") >= 0).all()
    assert (kl_estimate(log_p, log_q, "k3") >= -1e-12).all()


@settings(deadline=None, max_examples=100)
@given(logprob=st.floats(-15, 0), ref_logprob=st.floats(-15, 0), old_logprob=st.floats(-15, 0))
def test_a14_equals_the_oracle(logprob: float, ref_logprob: float, old_logprob: float) -> None:
    new, ref, old = (torch.tensor([x], dtype=torch.float64) for x in (logprob, ref_logprob, old_logprob))
    for kind in KINDS:
        for given_old, known in ((None, None), (old, old_logprob)):
            expected = reference.kl_estimate(logprob, ref_logprob, kind, known)
            assert kl_estimate(new, ref, kind, given_old).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


REFERENCE = torch.log_softmax(torch.tensor([0.3, -1.0, 0.8, 0.0], dtype=torch.float64), 0)


def mean_gradient(kind: KLKind, place: KLPlace, theta: torch.Tensor, old: torch.Tensor | None = None) -> torch.Tensor:
    """d of the expected loss / d theta for a divergence with the coefficient 1, exactly, over every word.

    In the reward the estimate is minus an advantage, which the policy's loss multiplies by the ratio; in the loss it is a term.
    """
    log_p = torch.log_softmax(theta, 0)
    sampled = log_p.detach() if old is None else old
    estimate = kl_estimate(log_p, REFERENCE, kind, sampled)
    loss = (log_p - sampled).exp() * estimate.detach() if place == "reward" else estimate
    return torch.autograd.grad((sampled.exp() * loss).sum(), theta)[0]


def divergences(theta: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of KL(policy || reference) and of KL(reference || policy)."""
    log_p = torch.log_softmax(theta, 0)
    forward, backward = (log_p.exp() * (log_p - REFERENCE)).sum(), (REFERENCE.exp() * (REFERENCE - log_p)).sum()
    return torch.autograd.grad(forward, theta, retain_graph=True)[0], torch.autograd.grad(backward, theta)[0]


THETA = torch.tensor([1.0, 0.5, -0.7, 0.2], dtype=torch.float64, requires_grad=True)


def test_a14_gradients_of_each_estimate_in_each_place() -> None:
    """What the docstring says of them."""
    forward, backward = divergences(THETA)
    in_loss: dict[KLKind, torch.Tensor] = {
        "k1": torch.zeros_like(forward), "k2": forward, "k3": backward, "k3_weighted": forward,
    }  # fmt: skip
    for kind, gradient in in_loss.items():
        torch.testing.assert_close(mean_gradient(kind, "loss", THETA), gradient, atol=1e-12, rtol=0)
    torch.testing.assert_close(mean_gradient("k1", "reward", THETA), forward, atol=1e-12, rtol=0)
    torch.testing.assert_close(mean_gradient("k3", "reward", THETA), forward - backward, atol=1e-12, rtol=0)


@pytest.mark.parametrize("place", ["reward", "loss"])
@pytest.mark.parametrize("kind", KINDS)
def test_a14_an_estimate_suits_a_place_if_it_draws_to_the_reference_from_near_it(kind: KLKind, place: KLPlace) -> None:
    """Near the reference both divergences have one gradient; an estimate without it has no force there."""
    theta = (REFERENCE + 1e-4 * torch.tensor([1.0, -2.0, 0.5, 0.3], dtype=torch.float64)).requires_grad_()
    forward, _ = divergences(theta)
    same = torch.allclose(mean_gradient(kind, place, theta), forward, rtol=1e-2, atol=0)
    assert same == (kind in SUITED[place])


def test_a14_the_weighted_estimate_stays_unbiased_and_right_when_another_policy_has_sampled() -> None:
    """After optimizer steps on the same responses; k2, right in the first step, is off."""
    old = torch.log_softmax(torch.tensor([-0.4, 0.9, 0.1, 0.6], dtype=torch.float64), 0)
    log_p = torch.log_softmax(THETA.detach(), 0)
    exact = (log_p.exp() * (log_p - REFERENCE)).sum()
    torch.testing.assert_close((old.exp() * kl_estimate(log_p, REFERENCE, "k3_weighted", old)).sum(), exact)
    forward, _ = divergences(THETA)
    torch.testing.assert_close(mean_gradient("k3_weighted", "loss", THETA, old), forward, atol=1e-12, rtol=0)
    assert (mean_gradient("k2", "loss", THETA, old) - forward).norm() > 0.1 * forward.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_a14_large_differences_stay_finite_and_keep_their_gradient(kind: KLKind) -> None:
    logprobs = torch.tensor([-500.0, -1e4, -0.0], requires_grad=True)
    kl = kl_estimate(logprobs, torch.tensor([0.0, -1.0, -500.0]), kind)
    assert torch.isfinite(kl).all()
    (gradient,) = torch.autograd.grad(kl.sum(), logprobs)
    assert torch.isfinite(gradient).all()
    assert (gradient != 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf, 1e38])
def test_a25_rubbish_in_padding_stays_there(kind: KLKind, rubbish: float) -> None:
    logprobs = torch.tensor([[-1.0, rubbish]], requires_grad=True)
    kl = kl_estimate(logprobs, torch.tensor([[-2.0, 0.5]]), kind)
    loss = torch.where(torch.tensor([[True, False]]), kl, 0.0).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    assert torch.isfinite(loss) and torch.isfinite(gradient).all() and gradient[0, 1] == 0


def test_bfloat16_logprobs_are_subtracted_in_float32() -> None:
    logprobs = torch.tensor([-1.0], dtype=torch.bfloat16)
    assert kl_estimate(logprobs, logprobs, "k3").dtype == torch.float32


def test_unknown_kind_lists_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="'k1', 'k2', 'k3' and 'k3_weighted'"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kl", "factor"), [(6.0, 1.0), (6.6, 1.001), (5.4, 0.999), (60.0, 1.002), (0.0, 0.998), (-1.0, 0.998)]
)
def test_the_coefficient_moves_towards_the_target_by_at_most_a_fifth_of_the_samples_share(kl, factor) -> None:
    """Ziegler et al. 2019: the error is relative, and clipped to 20 %."""
    assert adapted_kl_coef(0.5, kl, target=6.0, samples=100, horizon=10_000) == pytest.approx(0.5 * factor, rel=1e-12)


def test_the_coefficient_finds_the_value_at_which_the_target_is_met() -> None:
    """A policy whose divergence is 1 / coefficient: the target 4 is met at 0.25, from either side."""
    for start in (10.0, 1e-3):
        coef = start
        for _ in range(4000):
            coef = adapted_kl_coef(coef, 1 / coef, target=4.0, samples=256, horizon=10_000)
        assert coef == pytest.approx(0.25, rel=1e-3)


def test_the_coefficient_never_falls_to_0_for_ever() -> None:
    """However many responses a mean is of, and however long the target is out of reach; then it comes back."""
    assert adapted_kl_coef(0.5, 0.0, target=6.0, samples=1e9, horizon=10_000) == pytest.approx(0.4)
    assert adapted_kl_coef(0.5, 60.0, target=6.0, samples=1e9, horizon=10_000) == pytest.approx(0.6)
    coef = 0.5
    for _ in range(5000):
        coef = adapted_kl_coef(coef, 0.0, 6.0, samples=10_000, horizon=10_000)
    assert coef == LEAST_KL_COEF
    for _ in range(75):
        coef = adapted_kl_coef(coef, 60.0, 6.0, samples=10_000, horizon=10_000)
    assert coef > 0.5
    assert adapted_kl_coef(1e-9, 0.0, 6.0, 100, 10_000) == 1e-9  # where the user began below it, it stays
    assert adapted_kl_coef(1e-9, 60.0, 6.0, 100, 10_000) > 1e-9


def test_a_broken_divergence_leaves_the_coefficient_and_bad_settings_are_refused() -> None:
    assert adapted_kl_coef(0.5, math.nan, 6.0, 100, 10_000) == 0.5
    for target, horizon in ((0.0, 1.0), (1.0, 0.0)):
        with pytest.raises(ValueError, match="above 0"):
            adapted_kl_coef(0.5, 1.0, target, 1, horizon)
