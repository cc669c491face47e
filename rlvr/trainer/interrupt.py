"""Ctrl-C and SIGTERM become a request that the loop answers at its next safe point."""

import signal
import time
from types import FrameType
from typing import Any

# torchrun passes a Ctrl-C on to processes that the terminal has already sent it to: within this time it is one wish.
SAME_REQUEST_S = 3.0


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
    """Within the block, the first SIGINT or SIGTERM is remembered; a second SIGINT some seconds later acts at once."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.signum: int | None = None
        self._first = 0.0
        self._saved: dict[int, Any] = {}

    @property
    def requested(self) -> bool:
        return self.signum is not None

    def __enter__(self) -> "InterruptGuard":
        try:
            self._saved = {s: signal.signal(s, self._handle) for s in self.SIGNALS}
        except ValueError:  # not in the main thread, where signals can't be handled
            self._saved = {}
        return self

    def __exit__(self, *exc: object) -> None:
        for signum, handler in self._saved.items():
            signal.signal(signum, handler)

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum, self._first = signum, time.monotonic()
            return
        if signum == signal.SIGINT and time.monotonic() - self._first > SAME_REQUEST_S:
            raise KeyboardInterrupt
