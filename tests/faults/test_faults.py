"""A few of the faults of docs/faults.md, of every sort; all of them: `python -m tests.faults --count 200`."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
RUNS = ("ppo", "ppo x2", "sft", "ppo x2 fsdp")


def test_a30_after_each_fault_the_run_goes_on_to_the_same_result(clean_env) -> None:
    command = [sys.executable, "-m", "tests.faults", "--count", "10", "--seed", "2", "--runs", *RUNS]
    done = subprocess.run(command, env=clean_env, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    assert re.search(r"^10 faults, 0 with a wrong outcome", done.stdout, re.MULTILINE)
