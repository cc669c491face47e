"""math-verify as a fallback for golds that our parser can't read (integrals, sums, ...), in a process of its own.

The process (`fallback_process`) starts with `warm`, when a gold is seen that we can't read, or with the first question. How long
it may compute on a question is counted in its computing time, by the kernel, so that a busy machine changes no verdict; the clock
only ends the wait for a process that was stopped from outside. A gold is asked about first, by itself: what can't be read in
time is not read at all, and no answer can do that to a gold. An answer that can't be decided in time is not the gold.
"""

import atexit
import json
import os
import queue
import re
import subprocess
import threading
import warnings
from collections import OrderedDict

from rewards.own_python import own_python

PATIENCE_S = 60.0
"""By the clock: many times what starting takes, or a question's computing time on a busy machine."""
MAX_CHARACTERS = 300
_MAX_REMEMBERED = 1000

_COMMAND = re.compile(r"\\[A-Za-z]{2,}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")


def applies(gold: str) -> bool:
    """True for an unreadable gold that is worth asking math-verify about: short, and LaTeX without prose or cases."""
    if len(gold) > MAX_CHARACTERS or not gold.isascii() or "\\begin" in gold:
        return False
    return bool(_COMMAND.search(gold)) and not _WORD.search(gold)


def warm() -> None:
    """Start the process, if there is none, without waiting for it."""
    with _lock:
        _process()


def verify(answer: str, gold: str) -> bool | None:
    """math-verify's verdict on two LaTeX expressions, False where it comes to none; None if its process can't be had."""
    with _lock:
        readable = _asked(gold, gold)
        if not readable or len(answer) > MAX_CHARACTERS:
            return None if readable is None else False
        return _asked(answer, gold)


def _asked(answer: str, gold: str) -> bool | None:
    """What the process says, now or before; None where there is none. A process that was ended from outside is asked again."""
    if (answer, gold) not in _verdicts:
        said = _ask(answer, gold) or _ask(answer, gold)
        if said is None:
            return None
        _verdicts[answer, gold] = said.get("same") is True
        if len(_verdicts) > _MAX_REMEMBERED:
            _verdicts.popitem(last=False)
    return _verdicts[answer, gold]


class _Process:
    """The running process and the thread that reads what it says."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            own_python("rewards.maths.fallback_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # a question that could not be sent is not kept
        )
        self.ready = False
        self.lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")  # the end

    def ask(self, question: dict[str, str]) -> dict[str, bool | None] | None:
        """What it says; None if it is no more, or was stopped."""
        assert self.process.stdin is not None
        self.ready = self.ready or self._hear() is not None
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            return None
        return self._hear() if self.ready else None

    def _hear(self) -> dict[str, bool | None] | None:
        try:
            line = self.lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            return None
        return json.loads(line) if line else None

    def stop(self) -> None:
        """Kill it, and leave no zombie."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()


_lock = threading.Lock()
_running: _Process | None = None
_owner = 0
_verdicts: OrderedDict[tuple[str, str], bool] = OrderedDict()


def _ask(answer: str, gold: str) -> dict[str, bool | None] | None:
    process = _process()
    said = process.ask({"answer": answer, "gold": gold}) if process else None
    if said is None:
        _end()
    return said


def _process() -> _Process | None:
    """The running process, or a new one; a fork of this process starts its own. None if it can't be started."""
    global _running, _owner
    if _running is None or _owner != os.getpid():
        try:
            _running, _owner = _Process(), os.getpid()
        except OSError as error:
            warnings.warn(f"math-verify can't be asked about golds that rlvr can't read: {error}", stacklevel=2)
            return None
    return _running


def _end() -> None:
    global _running
    if _running is not None:
        _running.stop()
        _running = None


def _after_fork() -> None:
    """In a child: the lock may be held by a thread that is not there."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _stop() -> None:
    if _owner == os.getpid():
        _end()
