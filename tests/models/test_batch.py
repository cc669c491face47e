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


@pytest.mark.parametrize("side", SIDES)
def test_the_policys_tokens_stand_side_by_side_wherever_an_environments_are(side: Literal["left", "right"]) -> None:
    prompts = [torch.tensor([9]), torch.tensor([9, 9, 9])]
    responses = [torch.arange(20, 26), torch.arange(30, 33)]
    masks = [torch.tensor([1, 1, 0, 0, 1, 0]).bool(), None]
    batch = collate(prompts, responses, masks, padding_side=side, pad_to=8)
    assert batch.response_mask.tolist() == [[True, True, True], [True, True, True]]
    assert batch.response_ids.tolist() == [[20, 21, 24], [30, 31, 32]]
    shift = 1 if side == "left" else 0
    assert batch.response_index.tolist() == [
        [1 + shift, 2 + shift, 5 + shift],
        [3 + 2 * shift, 4 + 2 * shift, 5 + 2 * shift],
    ]
    assert batch.attention_mask.sum(1).tolist() == [7, 6], "an environment's tokens are read"
    whole = collate(prompts, responses, [torch.ones(6).bool(), None], padding_side=side, pad_to=8)
    plain = collate(prompts, responses, padding_side=side, pad_to=8)
    assert all(
        torch.equal(one, vars(plain)[name]) for name, one in vars(whole).items() if isinstance(one, torch.Tensor)
    )
