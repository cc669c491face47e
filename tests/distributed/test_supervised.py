"""Two processes learn what one does, in fine-tuning with packing and in training a reward model.

Tolerance: weights on average 2e-6 apart after three steps of at most 1e-2, in float32, as in `test_supervised` of one
process; held-out figures 1e-5 relative.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from supervised_worker import train_all

pytestmark = pytest.mark.processes
WORKER = Path(__file__).parents[1] / "supervised_worker.py"


@pytest.mark.usefixtures("process")
def test_a20_a24_two_processes_learn_what_one_does(tmp_path, clean_env) -> None:
    saved = tmp_path / "results.pt"
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
    done = subprocess.run(
        [*command, str(WORKER), str(saved)], env=clean_env, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    alone, together = train_all(), torch.load(saved, weights_only=True)
    assert alone.keys() == together.keys() and len(alone) == 6
    for name in alone:
        assert (alone[name]["weights"] - together[name]["weights"]).abs().mean() < 2e-6, name
        assert alone[name]["held out"] == pytest.approx(together[name]["held out"], rel=1e-5, abs=1e-6)
