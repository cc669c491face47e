"""Positions and masks of a padded batch, which come from the lengths of its rows."""

from typing import Literal

import pytest
import torch

from rlvr.models.batch import SequenceBatch, collate

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")
LENGTHS = [3, 1, 5, 2]


def batch_of(side: Literal["left", "right"], pad_to: int) -> SequenceBatch:
    """Rows of these lengths, whose prompts are one token and whose tokens are all the padding's id."""
    responses = [torch.zeros(length - 1, dtype=torch.long) for length in LENGTHS]
    return collate([torch.zeros(1)] * len(LENGTHS), responses, pad_id=0, padding_side=side, pad_to=pad_to)


@pytest.mark.parametrize("side", SIDES)
def test_a8_positions_come_from_lengths(side: Literal["left", "right"]) -> None:
    expected = []
    for length in LENGTHS:
        tokens, padding = list(range(length)), [0] * (5 - length)
        expected.append(padding + tokens if side == "left" else tokens + padding)
    assert batch_of(side, 5).position_ids.tolist() == expected


def test_a7_positions_and_mask_do_not_depend_on_the_amount_of_padding() -> None:
    for extra in (0, 1, 7):
        left, right = (batch_of(side, 5 + extra) for side in SIDES)
        assert left.attention_mask.sum(1).tolist() == right.attention_mask.sum(1).tolist() == LENGTHS
        assert torch.equal(left.position_ids[:, extra:], batch_of("left", 5).position_ids)
        assert torch.equal(right.position_ids[:, :5], batch_of("right", 5).position_ids)
