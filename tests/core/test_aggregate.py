"""The sum of the shares is the loss, however an optimizer step is split."""

import math
from collections.abc import Callable

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.core.losses import LossMode, StepSize, aggregate

MODES: tuple[LossMode, ...] = ("token_mean", "sequence_mean", "constant")
tokens = st.tuples(st.floats(-10, 10), st.booleans())
batches = st.lists(st.lists(tokens, max_size=6), min_size=1, max_size=7)
Batch = list[list[tuple[float, bool]]]


@settings(deadline=None, max_examples=150)
@given(batch=batches, mode=st.sampled_from(MODES), data=st.data())
def test_a20_a31_loss_and_gradient_do_not_depend_on_the_split(
    batch: Batch, mode: LossMode, data: st.DataObject, pad: Callable, pad_mask: Callable
) -> None:
    """Samples dealt out to micro-batches (or ranks) at random, each padded to its own longest row, some empty."""
    rows = [[x for x, _ in row] for row in batch]
    masks = [[m for _, m in row] for row in batch]
    part_of = data.draw(st.lists(st.integers(0, 3), min_size=len(batch), max_size=len(batch)))
    values = [torch.tensor(row, dtype=torch.float64, requires_grad=True) for row in rows]
    parts = [[i for i, p in enumerate(part_of) if p == part] for part in range(4)]
    flags = [pad_mask([masks[i] for i in part]) for part in parts]
    sizes = [StepSize.from_mask(mask) for mask in flags]
    size = StepSize(sum(s.tokens for s in sizes), sum(s.sequences for s in sizes))

    total = torch.zeros((), dtype=torch.float64)
    for part, mask in zip(parts, flags, strict=True):
        padded = torch.full(mask.shape, math.nan, dtype=torch.float64)
        for row, i in enumerate(part):
            padded[row, : len(values[i])] = values[i]
        total = total + aggregate(padded, mask, size, mode, constant_tokens=8)
    expected = reference.aggregate(rows, masks, mode, constant_tokens=8)
    assert total.item() == pytest.approx(expected, rel=1e-12, abs=1e-12)

    gradients = torch.autograd.grad(total, values, allow_unused=True)
    counted = [sum(mask) for mask in masks]
    for gradient, mask, count in zip(gradients, masks, counted, strict=True):
        weight = {
            "token_mean": 1 / (size.tokens or 1),
            "sequence_mean": 1 / (max(1, count) * (size.sequences or 1)),
            "constant": 1 / (8 * (size.sequences or 1)),
        }[mode]
        assert gradient is not None
        assert gradient.tolist() == pytest.approx([weight * m for m in mask], rel=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_a20_float32_is_invariant_to_rounding(mode: LossMode) -> None:
    generator = torch.Generator().manual_seed(0)
    losses = torch.randn(64, 40, generator=generator)
    mask = torch.arange(40) < torch.randint(0, 41, (64, 1), generator=generator)
    size = StepSize.from_mask(mask)
    whole = aggregate(losses, mask, size, mode, 40)
    for micro_batch in (1, 7, 16):
        shares = [
            aggregate(x, m, size, mode, 40)
            for x, m in zip(losses.split(micro_batch), mask.split(micro_batch), strict=True)
        ]
        assert torch.stack(shares).sum().item() == pytest.approx(whole.item(), abs=2e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (2, 0)])
def test_a25_nothing_that_counts_gives_zero_with_a_path_for_gradients(mode: LossMode, shape: tuple[int, int]) -> None:
    """Also where the whole step is empty: every rank can still run its backward pass."""
    losses = torch.full(shape, math.nan, requires_grad=True)
    for size in (StepSize(tokens=0, sequences=0), StepSize(tokens=5, sequences=2)):
        loss = aggregate(losses, torch.zeros(shape, dtype=torch.bool), size, mode, constant_tokens=4)
        assert loss.shape == () and loss.item() == 0.0
        (gradient,) = torch.autograd.grad(loss, losses)
        assert torch.equal(gradient, torch.zeros(shape))


def test_step_size_counts_responses_with_a_token_that_counts() -> None:
    mask = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 0, 0]])
    assert StepSize.from_mask(mask) == StepSize(tokens=3, sequences=2)


@pytest.mark.parametrize("constant_tokens", [None, 0])
def test_constant_needs_its_constant(constant_tokens: int | None) -> None:
    with pytest.raises(ValueError, match="constant_tokens of at least 1"):
        aggregate(torch.zeros(1, 1), torch.ones(1, 1), StepSize(1, 1), "constant", constant_tokens)


def test_unknown_mode_lists_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="'token_mean', 'sequence_mean' and 'constant'"):
        aggregate(torch.zeros(1, 1), torch.ones(1, 1), StepSize(1, 1), "mean")  # type: ignore[arg-type]
