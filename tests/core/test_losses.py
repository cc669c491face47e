"""Clipped policy and value losses, token by token."""

import itertools
import math

import pytest
import reference
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlvr.core.losses import (
    StepSize,
    aggregate,
    cispo_loss,
    clipped_policy_loss,
    clipped_value_loss,
    lm_loss,
    sapo_loss,
    sequence_logprobs,
)

RUBBISH = [math.nan, math.inf, -math.inf, 3e38, -3e38]
logprob = st.floats(-4, 0)
bounds = st.sampled_from(
    [(0.2, None, None), (0.2, 0.28, None), (0.1, 0.3, 3.0), (0.2, None, 1.5), (0.0, None, None), (0.5, 4.0, 2.0)]
)


def scalar(x: float) -> Tensor:
    return torch.tensor([x], dtype=torch.float64)


@settings(deadline=None, max_examples=300)
@given(new=logprob, old=logprob, advantage=st.floats(-3, 3), limits=bounds)
def test_a18_policy_loss_and_gradient_equal_the_oracle(
    new: float, old: float, advantage: float, limits: tuple[float, float | None, float | None]
) -> None:
    low, high, dual = limits
    up = low if high is None else high
    ratio = math.exp(new - old)
    corners = [1 - low, 1 + up, *([dual] if dual else [])]
    assume(all(abs(ratio - corner) > 1e-9 for corner in corners) or low == 0)
    assume(abs(advantage) > 1e-100 or advantage == 0)
    logprobs = scalar(new).requires_grad_()
    out = clipped_policy_loss(
        logprobs, scalar(old), scalar(advantage), clip_range=low, clip_range_high=high, dual_clip=dual
    )
    case = (new, old, advantage, low, up, dual)
    assert out.loss.item() == pytest.approx(reference.policy_loss(*case), rel=1e-12, abs=1e-12)
    assert out.ratio.item() == pytest.approx(ratio, rel=1e-12)
    assert out.approx_kl.item() == pytest.approx(0.5 * (new - old) ** 2, rel=1e-12, abs=1e-15)
    if new != old or low > 0:  # With no range at all the ratio 1 is a corner.
        assert out.clipped.item() == reference.policy_is_clipped(*case)
        (gradient,) = torch.autograd.grad(out.loss.sum(), logprobs)
        assert gradient.item() == pytest.approx(reference.policy_gradient(*case), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "advantage", "has_gradient"),
    [
        (1.5, +1.0, False),  # Risen enough, and more is asked for.
        (1.5, -1.0, True),  # Risen, but should fall: must be pulled back.
        (0.5, -1.0, False),  # Fallen enough.
        (0.5, +1.0, True),  # Fallen, but should rise.
        (1.1, +1.0, True),
        (0.9, -1.0, True),
    ],
)
def test_a18_clip_zeroes_the_gradient_only_on_the_correct_side(
    ratio: float, advantage: float, has_gradient: bool
) -> None:
    logprobs = scalar(math.log(ratio)).requires_grad_()
    out = clipped_policy_loss(logprobs, scalar(0.0), scalar(advantage), clip_range=0.2)
    (gradient,) = torch.autograd.grad(out.loss.sum(), logprobs)
    assert gradient.item() == pytest.approx(-advantage * ratio if has_gradient else 0.0)
    assert out.clipped.item() is not has_gradient


def test_a18_clip_higher_moves_the_upper_bound_only() -> None:
    ratios = torch.tensor([1.25, 1.35, 0.75])
    out = clipped_policy_loss(
        ratios.log(), torch.zeros(3), torch.tensor([1.0, 1.0, -1.0]), clip_range=0.2, clip_range_high=0.3
    )
    assert out.clipped.tolist() == [False, True, True]
    assert out.loss.tolist() == pytest.approx([-1.25, -1.3, 0.8])


def test_a18_dual_clip_bounds_the_loss_of_bad_tokens_only() -> None:
    ratios, advantages = torch.tensor([5.0, 2.0, 5.0]), torch.tensor([-1.0, -1.0, 1.0])
    out = clipped_policy_loss(ratios.log(), torch.zeros(3), advantages, clip_range=0.2, dual_clip=3.0)
    assert out.loss.tolist() == pytest.approx([3.0, 2.0, -1.2])
    assert out.clipped.tolist() == [True, False, True]


@pytest.mark.parametrize("dual_clip", [None, 3.0])
@pytest.mark.parametrize("log_ratio", [30.0, 500.0, 1e30, -500.0, -1e30])
def test_a18_a_ratio_beyond_float32_gives_finite_loss_and_gradient(log_ratio: float, dual_clip: float | None) -> None:
    for advantage in (-1.0, 1.0):
        logprobs = torch.tensor([log_ratio], requires_grad=True)
        out = clipped_policy_loss(
            logprobs, torch.zeros(1), torch.tensor([advantage]), clip_range=0.2, dual_clip=dual_clip
        )
        (gradient,) = torch.autograd.grad(out.loss.sum(), logprobs)
        assert torch.isfinite(out.loss).all() and torch.isfinite(gradient).all()
        needs_pull = log_ratio > 0 and advantage < 0 and dual_clip is None
        assert (gradient.item() > 0) is needs_pull, "the bound on the exponent must not stop a ratio from coming back"


def test_a16_on_the_first_mini_batch_ratio_is_1_and_approxkl_0() -> None:
    logprobs = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    advantages = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    out = clipped_policy_loss(logprobs, logprobs.detach(), advantages, clip_range=0.2, dual_clip=3.0)
    assert (out.ratio == 1).all() and not out.approx_kl.any() and not out.clipped.any()
    assert torch.equal(out.loss, -advantages)
    (gradient,) = torch.autograd.grad(out.loss.sum(), logprobs)
    assert torch.allclose(gradient, -advantages), "the gradient of plain policy gradient"


@settings(deadline=None, max_examples=200)
@given(
    new=logprob, old=logprob, advantage=st.floats(-3, 3), limits=st.sampled_from([(1.0, 4.0), (0.2, None), (0.5, 0.3)])
)
def test_cispo_keeps_the_gradient_of_every_token(
    new: float, old: float, advantage: float, limits: tuple[float, float | None]
) -> None:
    low, high = limits[0], limits[0] if limits[1] is None else limits[1]
    assume(all(abs(math.exp(new - old) - corner) > 1e-9 for corner in (1 - low, 1 + high)))
    logprobs = scalar(new).requires_grad_()
    out = cispo_loss(logprobs, scalar(old), scalar(advantage), clip_range=limits[0], clip_range_high=limits[1])
    loss, expected, bounded = reference.cispo(new, old, advantage, low, high)
    assert out.loss.item() == pytest.approx(loss, rel=1e-12, abs=1e-12) and out.clipped.item() is bounded
    (gradient,) = torch.autograd.grad(out.loss.sum(), logprobs)
    assert gradient.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@settings(deadline=None, max_examples=200)
@given(new=logprob, old=logprob, advantage=st.floats(-3, 3), taus=st.sampled_from([(1.0, 1.05), (0.5, 3.0)]))
def test_sapo_is_a_gate_of_the_ratio(new: float, old: float, advantage: float, taus: tuple[float, float]) -> None:
    logprobs = scalar(new).requires_grad_()
    out = sapo_loss(logprobs, scalar(old), scalar(advantage), tau_pos=taus[0], tau_neg=taus[1])
    loss, expected = reference.sapo(new, old, advantage, *taus)
    assert out.loss.item() == pytest.approx(loss, rel=1e-11, abs=1e-12) and not out.clipped.item()
    (gradient,) = torch.autograd.grad(out.loss.sum(), logprobs)
    assert gradient.item() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert out.approx_kl.item() == pytest.approx(0.5 * (new - old) ** 2, rel=1e-12, abs=1e-15)


def test_where_nothing_has_moved_all_policy_losses_have_the_gradient_of_the_policy() -> None:
    logprobs = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    advantages = torch.randn(3, 5, generator=torch.Generator().manual_seed(1))
    for out in (
        cispo_loss(logprobs, logprobs.detach(), advantages, clip_range=1.0, clip_range_high=4.0),
        sapo_loss(logprobs, logprobs.detach(), advantages, tau_pos=1.0, tau_neg=1.05),
    ):
        assert (out.ratio == 1).all() and not out.clipped.any()
        (gradient,) = torch.autograd.grad(out.loss.sum(), logprobs)
        assert torch.allclose(gradient, -advantages)


def test_limits_of_policy_losses_that_make_no_sense_are_refused() -> None:
    x = torch.zeros(1)
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        cispo_loss(x, x, x, clip_range=-1.0)
    with pytest.raises(ValueError, match="tau must be above 0, got 1.0 and 0"):
        sapo_loss(x, x, x, tau_pos=1.0, tau_neg=0.0)


@settings(deadline=None, max_examples=200)
@given(new=st.floats(-3, 3), old=st.floats(-3, 3), target=st.floats(-3, 3), clip=st.sampled_from([None, 0.0, 0.2, 1.0]))
def test_a19_value_loss_and_gradient_equal_the_oracle(
    new: float, old: float, target: float, clip: float | None
) -> None:
    bounded = new if clip is None else min(max(new, old - clip), old + clip)
    errors = abs(new - target), abs(bounded - target)
    assume(bounded == new or abs(errors[0] - errors[1]) > 1e-6)  # Where both losses are equal the gradient has a jump.
    assume(clip is None or abs(abs(new - old) - clip) > 1e-9)
    values = scalar(new).requires_grad_()
    out = clipped_value_loss(values, scalar(old), scalar(target), value_clip=clip)
    assert out.loss.item() == pytest.approx(reference.value_loss(new, old, target, clip), rel=1e-12, abs=1e-12)
    assert out.clipped.item() is (errors[1] > errors[0])
    (gradient,) = torch.autograd.grad(out.loss.sum(), values)
    assert gradient.item() == pytest.approx(reference.value_gradient(new, old, target, clip), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("value", "target", "has_gradient"),
    [(0.5, 1.0, False), (0.5, -1.0, True), (0.1, 1.0, True), (-0.5, 1.0, True), (-0.5, -1.0, False)],
)
def test_a19_value_clip_stops_moves_towards_the_target_only(value: float, target: float, has_gradient: bool) -> None:
    values = scalar(value).requires_grad_()
    out = clipped_value_loss(values, scalar(0.0), scalar(target), value_clip=0.2)
    (gradient,) = torch.autograd.grad(out.loss.sum(), values)
    assert gradient.item() == pytest.approx(value - target if has_gradient else 0.0)
    assert out.clipped.item() is not has_gradient


@pytest.mark.parametrize("rubbish", itertools.product([0.5, *RUBBISH], repeat=3))
def test_a25_rubbish_in_padding_touches_neither_loss_nor_gradient(rubbish: tuple[float, float, float]) -> None:
    """In any of the three inputs of either loss; the other token's loss and gradient stay what they are alone."""
    mask, size = torch.tensor([[True, False]]), StepSize(tokens=1, sequences=1)
    columns = [torch.tensor([[x, bad]]) for x, bad in zip((-0.6, -0.7, 1.0), rubbish, strict=True)]
    learned = columns[0].requires_grad_()
    for loss in (
        clipped_policy_loss(*columns, clip_range=0.2, dual_clip=3.0).loss,
        cispo_loss(*columns, clip_range=1.0, clip_range_high=4.0).loss,
        sapo_loss(*columns, tau_pos=1.0, tau_neg=1.05).loss,
        clipped_value_loss(*columns, value_clip=0.2).loss,
        lm_loss(columns[0]),
    ):
        total = aggregate(loss, mask, size, "token_mean")
        assert torch.equal(total, loss[0, 0])
        (gradient,) = torch.autograd.grad(total, learned)
        assert torch.isfinite(gradient).all() and gradient[0, 0] != 0 and gradient[0, 1] == 0


def test_a_nan_that_counts_is_not_hidden() -> None:
    nan = torch.tensor([math.nan])
    out = clipped_policy_loss(nan, torch.zeros(1), torch.ones(1), clip_range=0.2)
    assert out.loss.isnan() and out.ratio.isnan() and out.approx_kl.isnan()
    assert clipped_value_loss(nan, torch.zeros(1), torch.ones(1), value_clip=None).loss.isnan()


def test_no_gradient_reaches_what_is_not_learned() -> None:
    old, advantages, logprobs = (torch.zeros(2, requires_grad=True) for _ in range(3))
    out = clipped_policy_loss(logprobs, old, advantages, clip_range=0.2)
    assert not out.ratio.requires_grad and not out.approx_kl.requires_grad and not out.clipped.requires_grad
    (out.loss.sum() + clipped_value_loss(logprobs, old, advantages, value_clip=0.1).loss.sum()).backward()
    assert logprobs.grad is not None and old.grad is None and advantages.grad is None


def test_a31_losses_of_bfloat16_are_float32() -> None:
    x = torch.zeros(2, dtype=torch.bfloat16)
    assert clipped_policy_loss(x, x, x, clip_range=0.2).loss.dtype == torch.float32
    assert clipped_value_loss(x, x, x, value_clip=0.2).loss.dtype == torch.float32
    assert lm_loss(x).dtype == torch.float32


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(
        st.tuples(st.floats(-2, 2), st.lists(st.tuples(logprob, logprob), max_size=5)), min_size=1, max_size=4
    ),
    limits=bounds,
)
def test_a18_a20_sequence_ratio_gives_the_loss_and_gradient_of_gspo(rows, limits, pad, pad_mask) -> None:
    """GSPO's objective as it stands in the paper (arXiv:2507.18071, eq. 5 and 7), response by response, by autograd."""
    low, high, dual = limits
    up = low if high is None else high
    mask = pad_mask([[True] * len(tokens) for _, tokens in rows], 1)
    new = pad([[n for n, _ in tokens] for _, tokens in rows], extra=1).requires_grad_()
    old = pad([[o for _, o in tokens] for _, tokens in rows], extra=1)
    advantages = torch.tensor([a for a, _ in rows], dtype=torch.float64)[:, None].expand(mask.shape)
    stand_ins = sequence_logprobs(new, old, mask)
    loss = clipped_policy_loss(stand_ins, old, advantages, clip_range=low, clip_range_high=high, dual_clip=dual)
    got = aggregate(loss.loss, mask, StepSize.from_mask(mask), "sequence_mean")

    plain = [torch.tensor([n for n, _ in tokens], dtype=torch.float64, requires_grad=True) for _, tokens in rows]
    want = torch.zeros((), dtype=torch.float64)
    counted = [i for i, (_, tokens) in enumerate(rows) if tokens]
    for i in counted:
        ratio = (plain[i] - torch.tensor([o for _, o in rows[i][1]], dtype=torch.float64)).mean().exp()
        assume(all(abs(ratio.item() - corner) > 1e-9 for corner in (1 - low, 1 + up, *([dual] if dual else []))))
        objective = torch.minimum(ratio * rows[i][0], ratio.clamp(1 - low, 1 + up) * rows[i][0])
        if dual is not None and rows[i][0] < 0:
            objective = torch.maximum(objective, torch.tensor(dual * rows[i][0], dtype=torch.float64))
        want = want - objective / len(counted)
    assert got.item() == pytest.approx(want.item(), abs=1e-12)
    if counted:
        (gradient,) = torch.autograd.grad(got, new)
        gradients = torch.autograd.grad(want, [plain[i] for i in counted])
        for i, expected in zip(counted, gradients, strict=True):
            assert torch.allclose(gradient[i, : len(expected)], expected, atol=1e-12)
            assert not gradient[i, len(expected) :].any()


def test_a16_the_sequence_ratio_is_exactly_1_on_the_first_mini_batch() -> None:
    logprobs = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 5, dtype=torch.bool)
    out = clipped_policy_loss(
        sequence_logprobs(logprobs, logprobs, mask), logprobs, torch.ones(3, 5), clip_range=3e-4, clip_range_high=4e-4
    )
    assert (out.ratio == 1).all() and not out.clipped.any()


def test_lm_loss_is_the_negative_log_likelihood() -> None:
    assert lm_loss(torch.tensor([-1.5, -0.25])).tolist() == [1.5, 0.25]


def test_impossible_ranges_are_refused() -> None:
    x = torch.zeros(1)
    with pytest.raises(ValueError, match="clip ranges"):
        clipped_policy_loss(x, x, x, clip_range=-0.1)
    with pytest.raises(ValueError, match="clip ranges"):
        clipped_policy_loss(x, x, x, clip_range=0.2, clip_range_high=math.nan)
    with pytest.raises(ValueError, match="dual_clip"):
        clipped_policy_loss(x, x, x, clip_range=0.2, dual_clip=1.0)
    with pytest.raises(ValueError, match="value_clip"):
        clipped_value_loss(x, x, x, value_clip=-1.0)
