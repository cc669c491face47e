"""Masks, and the end of a response."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import cut_response

from rlvr.core.masked import mask_from_lengths, response_lengths, truncate_response

EOS, PAD, OTHER_STOP = 2, 0, 5
responses = st.integers(0, 8).flatmap(
    lambda size: st.lists(st.lists(st.integers(0, 6), min_size=size, max_size=size), min_size=1, max_size=5)
)


@settings(deadline=None, max_examples=100)
@given(rows=responses, stop_ids=st.sampled_from([[EOS], [EOS, OTHER_STOP], []]))
def test_a4_a5_response_ends_with_its_first_stop_token_counted_once(rows: list[list[int]], stop_ids: list[int]) -> None:
    ids = torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)
    lengths = response_lengths(ids, stop_ids)
    assert lengths.tolist() == [len(cut_response(row, stop_ids)) for row in rows]
    for row, mask in zip(ids, mask_from_lengths(lengths, ids.size(1)), strict=True):
        kept = row[mask]
        assert torch.isin(kept, torch.tensor(stop_ids, dtype=torch.long)).sum() <= 1
        if torch.isin(row, torch.tensor(stop_ids, dtype=torch.long)).any():
            assert int(kept[-1]) in stop_ids


@settings(deadline=None, max_examples=100)
@given(rows=responses, pad_id=st.sampled_from([PAD, EOS, OTHER_STOP]))
def test_a5_a6_truncation_pads_after_the_first_stop_whatever_the_pad_is(rows: list[list[int]], pad_id: int) -> None:
    ids = torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)
    before = ids.clone()
    truncated = truncate_response(EOS, pad_id, ids)
    for row, out in zip(rows, truncated.tolist(), strict=True):
        kept = cut_response(row, [EOS])
        assert out == kept + [pad_id] * (len(row) - len(kept))
    assert torch.equal(ids, before), "the input is left alone"


@settings(deadline=None, max_examples=100)
@given(rows=responses)
def test_a6_eos_as_pad_changes_no_length(rows: list[list[int]]) -> None:
    ids = torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1)
    lengths = response_lengths(ids, [EOS])
    for pad_id in (EOS, 6):
        assert torch.equal(response_lengths(truncate_response(EOS, pad_id, ids), [EOS]), lengths)


def test_a7_mask_does_not_depend_on_the_amount_of_padding() -> None:
    for extra in (0, 1, 7):
        assert mask_from_lengths(torch.tensor([2, 4]), 4 + extra).sum(1).tolist() == [2, 4]


def test_mask_takes_the_longest_row_as_its_size() -> None:
    assert mask_from_lengths(torch.tensor([2, 0, 3])).tolist() == [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
    assert mask_from_lengths(torch.tensor([], dtype=torch.long)).shape == (0, 0)
    assert mask_from_lengths(torch.tensor([], dtype=torch.long), 4).shape == (0, 4)


@pytest.mark.parametrize("lengths", [[3, 5], [-1, 2]])
def test_impossible_lengths_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="from 0 to size=4"):
        mask_from_lengths(torch.tensor(lengths), 4)
