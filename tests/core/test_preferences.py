"""Losses and measures of reward models against sums written out in plain Python."""

import math

import pytest
import torch

from rlvr.core.preferences import (
    bradley_terry_loss,
    brier_score,
    centering_loss,
    confidence_bins,
    expected_calibration_error,
)

CHOSEN = [0.3, -1.0, 2.0, 0.5, 40.0, 0.0]
REJECTED = [0.1, 1.0, -2.0, 0.5, -40.0, 3.0]
MARGIN = [0.0, 0.5, 1.0, 0.0, 2.0, 0.25]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def tensors(*lists: list[float], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.tensor(values, dtype=dtype, requires_grad=True) for values in lists]


def test_bradley_terry_with_margin_and_its_gradient() -> None:
    chosen, rejected = tensors(CHOSEN, REJECTED, dtype=torch.float64)
    loss = bradley_terry_loss(chosen, rejected, torch.tensor(MARGIN, dtype=torch.float64))
    for value, c, r, m in zip(loss.tolist(), CHOSEN, REJECTED, MARGIN, strict=True):
        assert value == pytest.approx(math.log1p(math.exp(-(c - r - m))))
    loss.sum().backward()
    for own, other, c, r, m in zip(chosen.grad, rejected.grad, CHOSEN, REJECTED, MARGIN, strict=True):
        assert own.item() == pytest.approx(-sigmoid(-(c - r - m))) and other.item() == -own.item()


def test_it_is_finite_where_scores_are_far_apart_and_float32_under_bf16() -> None:
    far = bradley_terry_loss(torch.tensor([-500.0, 500.0]), torch.tensor([500.0, -500.0]))
    assert far.tolist() == [1000.0, 0.0]
    assert (
        bradley_terry_loss(torch.zeros(1, dtype=torch.bfloat16), torch.zeros(1, dtype=torch.bfloat16)).dtype
        == torch.float32
    )


def test_centering_pulls_the_sum_to_zero() -> None:
    chosen, rejected = tensors(CHOSEN, REJECTED)
    loss = centering_loss(chosen, rejected)
    assert loss.tolist() == pytest.approx([(c + r) ** 2 for c, r in zip(CHOSEN, REJECTED, strict=True)])
    loss.sum().backward()
    expected = [2 * (c + r) for c, r in zip(CHOSEN, REJECTED, strict=True)]
    assert chosen.grad.tolist() == pytest.approx(expected) and rejected.grad.tolist() == pytest.approx(expected)


def test_brier_and_calibration_error_of_a_handful_of_pairs() -> None:
    chosen, rejected = tensors(CHOSEN, REJECTED)
    p = [sigmoid(c - r) for c, r in zip(CHOSEN, REJECTED, strict=True)]
    assert brier_score(chosen, rejected).tolist() == pytest.approx([(1 - x) ** 2 for x in p], abs=1e-7)
    bins: dict[int, list[tuple[float, float]]] = {}
    for x, c, r in zip(p, CHOSEN, REJECTED, strict=True):
        sure = max(x, 1 - x)
        bins.setdefault(min(9, int((sure - 0.5) * 20)), []).append((sure, float(c > r)))
    error = sum(
        len(b) / len(p) * abs(sum(right for _, right in b) / len(b) - sum(s for s, _ in b) / len(b))
        for b in bins.values()
    )
    assert expected_calibration_error(*confidence_bins(chosen, rejected)) == pytest.approx(error, abs=1e-6)


def test_a_model_that_is_as_often_right_as_it_is_sure_has_no_error() -> None:
    """Scores 1.5 apart, in the right order as often as sigmoid(1.5) says; twice as far apart they are too sure."""
    generator = torch.Generator().manual_seed(0)
    apart = torch.full((200_000,), 1.5)
    right = torch.rand(len(apart), generator=generator) < torch.sigmoid(apart)
    scores = torch.where(right, apart, -apart)
    assert expected_calibration_error(*confidence_bins(scores, torch.zeros_like(scores))) < 0.005
    assert expected_calibration_error(*confidence_bins(2 * scores, torch.zeros_like(scores))) == pytest.approx(
        sigmoid(3.0) - sigmoid(1.5), abs=0.005
    )


def test_bins_of_parts_add_up_and_no_pairs_give_no_error() -> None:
    chosen, rejected = torch.randn(2, 50, generator=torch.Generator().manual_seed(1))
    whole = confidence_bins(chosen, rejected)
    parts = [confidence_bins(chosen[a:b], rejected[a:b]) for a, b in ((0, 20), (20, 50))]
    for total, *pieces in zip(whole, *parts, strict=True):
        assert torch.allclose(total, sum(pieces))
    assert expected_calibration_error(*confidence_bins(chosen[:0], rejected[:0])) == 0.0
