"""Masked means and whitening."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlvr.core.masked import masked_mean, masked_sum, whiten

# Rows of tokens (value, does it count).
tokens = st.tuples(st.floats(-100, 100), st.booleans())
batches = st.lists(st.lists(tokens, max_size=6), min_size=1, max_size=5)
Batch = list[list[tuple[float, bool]]]


def unzip(batch: Batch) -> tuple[list[list[float]], list[list[bool]]]:
    return [[x for x, _ in row] for row in batch], [[m for _, m in row] for row in batch]


def over_ranks(function: Callable[[int, Callable[[Tensor], Tensor]], Tensor], ranks: int) -> list[Tensor]:
    """What `function(rank, all_reduce)` returns on each of several ranks, which are threads that wait for each other."""
    parts: list[Tensor] = [torch.empty(0)] * ranks
    barrier = Barrier(ranks, timeout=20)

    def run(rank: int) -> Tensor:
        def all_reduce(x: Tensor) -> Tensor:
            parts[rank] = x
            barrier.wait()
            total = torch.stack(parts).sum(0)
            barrier.wait()
            return total

        return function(rank, all_reduce)

    with ThreadPoolExecutor(ranks) as pool:
        return list(pool.map(run, range(ranks)))


@settings(deadline=None, max_examples=100)
@given(batch=batches, extra=st.integers(0, 3), rubbish=st.sampled_from([0.0, 1e30, math.inf, math.nan]))
def test_a31_means_exclude_padding(batch: Batch, extra: int, rubbish: float, pad: Callable, pad_mask: Callable) -> None:
    rows, masks = unzip(batch)
    values, mask = pad(rows, rubbish, extra), pad_mask(masks, extra)
    values = torch.where(mask, values, rubbish)
    flat = reference.selected(rows, masks)
    assert masked_sum(values, mask).item() == pytest.approx(math.fsum(flat), abs=1e-9)
    assert masked_mean(values, mask).item() == pytest.approx(reference.mean(rows, masks), abs=1e-9)
    per_row = [reference.mean([row], [flags]) for row, flags in zip(rows, masks, strict=True)]
    assert masked_mean(values, mask, dim=1).tolist() == pytest.approx(per_row, abs=1e-9)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 4)])
def test_a25_nothing_selected_gives_zero_with_a_gradient_of_zero(shape: tuple[int, int]) -> None:
    values = torch.full(shape, math.nan, requires_grad=True)
    mask = torch.zeros(shape, dtype=torch.bool)
    for function in (masked_sum, masked_mean):
        result = function(values, mask)
        assert result.item() == 0.0
        (gradient,) = torch.autograd.grad(result, values)
        assert torch.equal(gradient, torch.zeros(shape))
    assert not whiten(values.detach(), mask).any()


def test_a31_means_of_bfloat16_are_float32() -> None:
    values = torch.full((1, 4096), 1.0, dtype=torch.bfloat16)
    mask = torch.ones(1, 4096, dtype=torch.bool)
    assert masked_sum(values, mask).dtype == torch.float32
    assert masked_sum(values, mask).item() == 4096.0
    assert whiten(values, mask).dtype == torch.float32


@settings(deadline=None, max_examples=100)
@given(batch=batches, shift_mean=st.booleans())
def test_a13_whitening_equals_the_oracle(batch: Batch, shift_mean: bool, pad: Callable, pad_mask: Callable) -> None:
    rows, masks = unzip(batch)
    white = whiten(pad(rows, extra=1), pad_mask(masks, 1), shift_mean=shift_mean)
    expected = pad(reference.whiten(rows, masks, shift_mean), 0.0, 1)
    assert torch.allclose(white, expected, rtol=1e-9, atol=1e-8)


@settings(deadline=None, max_examples=25)
@given(batch=batches, ranks=st.integers(2, 4), shift_mean=st.booleans())
def test_a13_whitening_is_global_over_ranks(
    batch: Batch, ranks: int, shift_mean: bool, pad: Callable, pad_mask: Callable
) -> None:
    """Ranks hold rows of different number and length, or none at all, and give what one process gives."""
    rows, masks = unzip(batch)
    whole = whiten(pad(rows), pad_mask(masks), shift_mean=shift_mean)

    def on_rank(rank: int, all_reduce: Callable[[Tensor], Tensor]) -> Tensor:
        own = slice(rank, None, ranks)
        return whiten(pad(rows[own]), pad_mask(masks[own]), shift_mean=shift_mean, all_reduce=all_reduce)

    for rank, white in enumerate(over_ranks(on_rank, ranks)):
        expected = whole[rank::ranks, : white.size(1)]
        assert torch.allclose(white, expected, rtol=1e-9, atol=1e-9)


def test_a13_whitening_is_stable_under_a_large_offset() -> None:
    values = torch.tensor([[1e6 + 1, 1e6 + 2, 1e6 + 3]], dtype=torch.float32)
    white = whiten(values, torch.ones(1, 3, dtype=torch.bool))
    assert white.tolist()[0] == pytest.approx([-math.sqrt(1.5), 0.0, math.sqrt(1.5)], abs=1e-5)


@pytest.mark.parametrize("values", [[0.1, 0.1, 0.1], [0.1]])
def test_a13_equal_advantages_become_zero_not_noise(values: Sequence[float]) -> None:
    white = whiten(torch.tensor([values]), torch.ones(1, len(values), dtype=torch.bool))
    assert white.abs().max() < 1e-6
