"""Stopping on request: the first SIGINT or SIGTERM lets the loop save and end, a second one ends the process."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SAME_REQUEST_S = 3.0
"""A second signal within this time is the same request: torchrun passes a Ctrl-C on to processes that the terminal has already
sent it to."""
GRACE_S = 5.0
"""How long a process may clean up after the second signal."""
_STOPS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(Exception):
    """The run was asked to stop and has stopped at a safe point.

    Attributes:
        signum: the signal.
        checkpoint: folder of the checkpoint saved on the way out; None when nothing is saved.
    """

    def __init__(self, signum: int, checkpoint: str | None) -> None:
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signum
        self.checkpoint = checkpoint


class InterruptGuard:
    """Within the block, the first SIGINT or SIGTERM is only remembered, and acknowledged, for the loop to stop at its next safe
    point. A second one some seconds later raises `KeyboardInterrupt` at once."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._first = 0.0
        self._saved: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        return self.signum is not None

    def __enter__(self) -> "InterruptGuard":
        try:
            self._saved = {s: signal.signal(s, self._handle) for s in _STOPS}
        except ValueError:  # not in the main thread, where signals can't be handled
            self._saved = {}
        return self

    def __exit__(self, *exc: object) -> None:
        for signum, handler in self._saved.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum, self._first = signum, time.monotonic()
            if os.environ.get("RANK", "0") == "0":
                again = "press Ctrl-C again" if signum == signal.SIGINT else "send the signal again"
                _say(
                    f"\nstopping at the next safe point, to save what was learned; {again} to stop at once, without saving\n"
                )
        elif time.monotonic() - self._first > SAME_REQUEST_S:
            raise KeyboardInterrupt


@contextmanager
def second_signal_ends() -> Iterator[None]:
    """Within the block, the process ends soon after a second SIGINT or SIGTERM, whatever it is doing.

    Python runs handlers in the main thread, which may wait in a library for another process (in the rendezvous, or a collective)
    for half an hour. A thread of its own learns of signals at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tell = os.pipe()
    os.set_blocking(tell, False)
    before = signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(told,), name="second-signal", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(tell)  # which ends the thread


def _watch(told: int) -> None:
    first = None
    while data := os.read(told, 64):
        for signum in data:
            if signum not in _STOPS:
                continue
            if first is None:
                first = time.monotonic()
            elif time.monotonic() - first > SAME_REQUEST_S:
                time.sleep(GRACE_S)
                _say(f"ended by a second {signal.Signals(signum).name}\n")
                os._exit(128 + signum)
    os.close(told)


def _say(text: str) -> None:
    """To stderr, unbuffered: a signal may come in the middle of another print."""
    try:
        os.write(2, text.encode())
    except OSError:  # nobody reads it
        pass
