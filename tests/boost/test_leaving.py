"""Leaving a process group."""

import subprocess
import sys

import pytest

PROGRAM = """
import glob
import torch.distributed as dist
from rlvr.boost.process import start, stop

def threads():
    return sum("gloo_runloop" in open(path).read() for path in glob.glob("/proc/self/task/*/comm"))

class Dead:
    pass

start(0)
dead = Dead()
dead.itself, dead.group = dead, dist.group.WORLD
before = threads()
del dead
stop()
print(before > 0, threads())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the names of threads from /proc")
def test_no_thread_of_the_group_runs_when_the_interpreter_ends(clean_env) -> None:
    """Not even where a cycle of dead objects, such as a trainer's, holds the group: then a run ends with SIGABRT now and then."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], env=clean_env, capture_output=True, text=True, timeout=800)
    assert result.stdout.split() == ["True", "0"], result.stderr
