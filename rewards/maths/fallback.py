"""math-verify as a fallback for golds that our parser can't read (integrals, sums, ...), in a process that can be killed.

The process is killed when it takes too long or goes wrong, and another is started at once.

The process starts with `warm` (when a gold is seen that we can't read), or with the first question, which then may get no
verdict: starting takes a second or two, and no call waits for it longer than `PATIENCE_S`. The deadline of a question is one
of computing time (see `fallback_process`), so that a busy machine changes no verdict. A gold that hung the process is not asked
about again.
"""

import atexit
import json
import os
import queue
import re
import subprocess
import sys
import threading
import warnings
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

PATIENCE_S = 0.8
MAX_CHARACTERS = 300
MAX_HUNG = 2
"""A gold that hung the process so often, and hangs it by itself, is not asked about again. (Answers may be meant to hang it.)"""
_MAX_REMEMBERED = 1000
_ROOT = str(Path(__file__).parents[2])

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
    """math-verify's verdict on two LaTeX expressions; None when it gave none in time, or is still starting."""
    if len(answer) > MAX_CHARACTERS:
        return None
    with _lock:
        if (answer, gold) in _verdicts:
            return _verdicts[answer, gold]
        if _is_hopeless(gold):
            return None
        same = _ask(answer, gold)
        if same is not None:
            _remember(answer, gold, same)
        return same


def _is_hopeless(gold: str) -> bool:
    if _hung[gold] < MAX_HUNG or (gold, gold) in _verdicts:
        return False
    if _hung[gold] == MAX_HUNG and (same := _ask(gold, gold)) is not None:
        _remember(gold, gold, same)
        return False
    return True


def _remember(answer: str, gold: str, same: bool) -> None:
    _verdicts[answer, gold] = same
    if len(_verdicts) > _MAX_REMEMBERED:
        _verdicts.popitem(last=False)


class _Process:
    """The running process and the thread that reads what it says."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, sys.path)])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rewards.maths.fallback_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.ready = False
        self.lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")  # the end

    def wait_until_ready(self, timeout_s: float) -> bool:
        """True once it has started; waits for it no longer than this."""
        if not self.ready:
            self.ready = self._hear(timeout_s) == {"ready": True}
        return self.ready

    def ask(self, question: dict[str, str], timeout_s: float) -> bool | None:
        """Its verdict; None if it gives none in time, or is no more."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        said = self._hear(timeout_s)
        same = said.get("same") if isinstance(said, dict) else None
        return same if isinstance(same, bool) else None

    def _hear(self, timeout_s: float) -> Any:
        try:
            line = self.lines.get(timeout=timeout_s)
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
_hung: Counter[str] = Counter()


def _ask(answer: str, gold: str) -> bool | None:
    process = _process()
    if process is None or not process.wait_until_ready(PATIENCE_S):
        return None
    same = process.ask({"answer": answer, "gold": gold}, PATIENCE_S)
    if same is None:
        _end()
        if len(_hung) < _MAX_REMEMBERED:
            _hung[gold] += 1
        _process()  # the next question should not have to wait
    return same


def _process() -> _Process | None:
    """The running process, or a new one; a fork of this process starts its own. None if it can't be started."""
    global _running, _owner
    if _running is not None and _owner == os.getpid() and _running.process.poll() is not None and _running.ready:
        _end()
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
