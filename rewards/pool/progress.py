"""Shared memory between the pool and one worker: where it is, and what it has finished.

A message for each sample would cost more than many a reward function. The worker writes a few numbers instead, and each
finished line behind them, so that nothing that it had finished is lost when it is killed.
"""

import mmap
import os
import tempfile

_INDEX, _SINCE, _WRITTEN, _STOP, _HEADER = range(5)  # 8 bytes each
_START = 64
CAPACITY_BYTES = 2**18


class Progress:
    """A worker's place in its chunk. Numbers are 8 bytes, aligned: a reader sees an old or a new one, never half of it."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _START + CAPACITY_BYTES)
        self._view = memoryview(self._map)
        self._ints = self._view[:_START].cast("q")
        self._floats = self._view[:_START].cast("d")

    @staticmethod
    def create() -> int:
        """A file that lives in memory, for both sides to map; the caller closes it."""
        if hasattr(os, "memfd_create"):
            fd = os.memfd_create("rewards-pool")
        else:
            with tempfile.TemporaryFile(buffering=0) as file:
                fd = os.dup(file.fileno())
        os.ftruncate(fd, _START + CAPACITY_BYTES)
        return fd

    def reset(self) -> None:
        """Before a chunk is sent, while the worker waits."""
        self._ints[_INDEX], self._ints[_WRITTEN], self._ints[_STOP] = -1, 0, 0

    def close(self) -> None:
        for view in (self._ints, self._floats, self._view):
            view.release()
        self._map.close()

    # The worker's side.

    def begin(self, index: int, now_s: float) -> None:
        """The worker takes the call `index` of its chunk."""
        # Time first: a reader between the two sees a call that began late, and kills nothing too early.
        self._floats[_SINCE] = now_s
        self._ints[_INDEX] = index

    def append(self, line: bytes) -> bool:
        """Keep a finished line; False where it does not fit."""
        start = self._ints[_WRITTEN]
        end = start + len(line) + 1
        if end > CAPACITY_BYTES:
            return False
        self._view[_START + start : _START + end] = line + b"\n"
        self._ints[_WRITTEN] = end
        return True

    def take(self) -> bytes:
        """The lines so far, which are forgotten."""
        lines = self.lines()
        self._ints[_WRITTEN] = 0
        return lines

    @property
    def stopped(self) -> bool:
        return bool(self._ints[_STOP])

    # The pool's side.

    def stop(self) -> None:
        """Ask the worker to go no further than the call that it is on."""
        self._ints[_STOP] = 1

    @property
    def index(self) -> int:
        """The call that the worker is on; -1 before the first."""
        return self._ints[_INDEX]

    @property
    def since_s(self) -> float:
        """When it took that call, by the monotonic clock."""
        return self._floats[_SINCE]

    def lines(self) -> bytes:
        """What is finished, one line each."""
        written = min(max(self._ints[_WRITTEN], 0), CAPACITY_BYTES)
        return bytes(self._view[_START : _START + written])
