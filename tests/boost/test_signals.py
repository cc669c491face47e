"""The first signal is acknowledged and remembered; a second one ends the process, whatever it is doing."""

import os
import signal
import subprocess
import sys
import time

import pytest

from rlvr.boost import signals
from rlvr.boost.signals import InterruptGuard

# The main thread takes no signal, as if it waited in a library for another process.
STUCK = """
import signal, sys, time
from rlvr.boost import signals
signals.SAME_REQUEST_S, signals.GRACE_S = 0.2, 0.1
for number in (signal.SIGINT, signal.SIGTERM):  # a main thread that has not begun to wait yet would run Python's own
    signal.signal(number, lambda *_: None)
with signals.second_signal_ends():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    print("stuck", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_hangs_ends_at_the_second(signum, clean_env) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", STUCK], env=clean_env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signum)
        time.sleep(3)  # one that comes within SAME_REQUEST_S of the first being read counts as the first
        assert process.poll() is None  # the first lets it save
        process.send_signal(signum)
        assert process.wait(20) == 128 + signum
        assert "ended by a second" in process.stderr.read()
    finally:
        process.kill()
        process.wait()


def test_the_first_is_acknowledged_the_second_raises(monkeypatch, capfd) -> None:
    monkeypatch.setattr(signals, "SAME_REQUEST_S", 60.0)
    with InterruptGuard() as guard:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # torchrun's copy of the same Ctrl-C
        assert guard.requested
        assert capfd.readouterr().err.count("press Ctrl-C again to stop at once") == 1
        monkeypatch.setattr(signals, "SAME_REQUEST_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_without_a_signal_nothing_is_left(capfd) -> None:
    with signals.second_signal_ends():
        inside = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(inside)
        assert inside >= 0
    assert signal.set_wakeup_fd(-1) == -1
    assert capfd.readouterr().err == ""
