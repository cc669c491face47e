"""A process whose launcher is killed while it waits for the others ends within seconds."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from leftovers import is_alive

LAUNCHER = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
time.sleep(600)
"""
RANK = """
import time
from rlvr.boost.launcher import ends_with_launcher
with ends_with_launcher():
    print("waits", flush=True)
    time.sleep({waits})
print("goes on", flush=True)
"""


@pytest.mark.parametrize(("of_torchrun", "ends"), [(True, True), (False, False)])
def test_it_ends_with_a_launcher_that_is_killed(of_torchrun, ends, clean_env) -> None:
    """Unless something else than torchrun started it (a shell that was left, say)."""
    env = clean_env | {"RANK": "1"} | ({"TORCHELASTIC_RUN_ID": "x"} if of_torchrun else {})
    code = RANK.format(waits=600 if ends else 2)
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert launcher.stdout and launcher.stderr
    lines = [launcher.stdout.readline(), launcher.stdout.readline()]  # in either order
    lines.remove("waits\n")
    rank = psutil.Process(int(lines[0]))
    os.kill(launcher.pid, signal.SIGKILL)
    said, complained = launcher.stdout.read(), launcher.stderr.read()  # until the rank has ended, too
    assert said == ("" if ends else "goes on\n")
    assert ("rank 1 ends: torchrun, which started it, is gone" in complained) is ends
    launcher.wait()
    deadline = time.monotonic() + 30
    while is_alive(rank):
        assert time.monotonic() < deadline
        time.sleep(0.05)
