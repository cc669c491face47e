"""Two processes learn what one does, in fine-tuning with packing and in training a reward model.

Tolerance: weights on average 2e-6 apart after three steps of at most 1e-2, in float32, as in `test_supervised` of one
process; held-out figures 1e-5 relative.
"""

import pytest
import torch
from supervised_worker import train_all

pytestmark = pytest.mark.processes


@pytest.mark.usefixtures("process")
def test_a20_a24_two_processes_learn_what_one_does(tmp_path, ranks) -> None:
    saved = tmp_path / "results.pt"
    ranks.done(2, "supervised_worker:main", saved)
    alone, together = train_all(), torch.load(saved, weights_only=True)
    assert alone.keys() == together.keys() and len(alone) == 6
    for name in alone:
        assert (alone[name]["weights"] - together[name]["weights"]).abs().mean() < 2e-6, name
        assert alone[name]["held out"] == pytest.approx(together[name]["held out"], rel=1e-5, abs=1e-6)
