"""`Rollout`: which tokens are the policy's, and where its turns end."""

import pytest
import torch

from rlvr.rollout.engine import Rollout


@pytest.mark.parametrize(
    ("mask", "actions", "ends", "last"),
    [
        (None, [0, 1, 2, 3, 4], [0, 0, 0, 0, 1], [0, 1, 2, 3, 4]),
        ([1, 1, 1, 1, 1], [0, 1, 2, 3, 4], [0, 0, 0, 0, 1], [0, 1, 2, 3, 4]),
        ([1, 1, 0, 1, 1], [0, 1, 3, 4], [0, 1, 0, 1], [3, 4]),
        ([1, 0, 1, 0, 1], [0, 2, 4], [1, 1, 1], [4]),
        ([1, 1, 1, 0, 0], [0, 1, 2], [0, 0, 1], [0, 1, 2]),
    ],
)
def test_turns_are_runs_of_the_policys_tokens(mask, actions, ends, last) -> None:
    rollout = Rollout(
        torch.tensor([7]), torch.arange(5), "stop", action_mask=None if mask is None else torch.tensor(mask).bool()
    )
    assert rollout.action_ids.tolist() == actions
    assert rollout.turn_ends.tolist() == [bool(end) for end in ends]
    assert rollout.last_turn_ids.tolist() == last


@pytest.mark.parametrize("mask", [None, torch.zeros(0).bool()])
def test_an_empty_response_has_no_turn(mask) -> None:
    rollout = Rollout(torch.tensor([7]), torch.zeros(0, dtype=torch.long), "stop", action_mask=mask)
    assert not len(rollout.action_ids) and not len(rollout.turn_ends) and not len(rollout.last_turn_ids)
