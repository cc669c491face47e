"""What reward functions print: passed on to this process's stderr, and no more than so much of it.

A function that prints without end (3 GB in 14 s were seen) would fill the disk that a run's log lies on.
"""

import os
import threading
import time

BURST_BYTES = 2**20
"""So much is passed on at once ..."""
BYTES_PER_S = 2**16
"""... and so much from then on."""
LEFT_OUT = b"\n[reward functions print too much: what follows is left out]\n"
_CLOSE_S = 1.0


class Output:
    """A pipe for workers to print into, and a thread that passes it on.

    Attributes:
        writer: file descriptor for workers to inherit.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._thread = threading.Thread(target=self._pass_on, name="reward-output", daemon=True)
        self._thread.start()

    def _pass_on(self) -> None:
        room, seen_s, silent = float(BURST_BYTES), time.monotonic(), False
        while data := os.read(self._reader, 2**16):
            now_s = time.monotonic()
            room, seen_s = min(BURST_BYTES, room + (now_s - seen_s) * BYTES_PER_S), now_s
            if len(data) <= room:
                room, silent = room - len(data), False
                _write(data)
            elif not silent:
                silent = True
                _write(LEFT_OUT)
        os.close(self._reader)

    def close(self) -> None:
        """Pass on what is left. A process that a function left behind may hold the pipe open; it is not waited for."""
        os.close(self.writer)
        self._thread.join(_CLOSE_S)

    def abandon(self) -> None:
        """In a fork of the pool's process, where the thread is not: close our copies."""
        os.close(self.writer)
        os.close(self._reader)


def _write(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # nobody reads it
        pass
