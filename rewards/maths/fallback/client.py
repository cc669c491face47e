"""Asks the fallback process; kills it when it takes too long or goes wrong, and starts another for the next question.

The process starts when the first question comes. Starting (about two seconds) does not count against the deadline.
"""

import atexit
import json
import os
import queue
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

DEADLINE_S = 0.8
START_S = 30.0
MAX_CHARACTERS = 300

_ROOT = str(Path(__file__).parents[3])


_COMMAND = re.compile(r"\\[A-Za-z]{2,}")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")


def applies(gold: str) -> bool:
    """Whether a gold that we could not read is worth a question: short, and LaTeX without prose or cases."""
    if len(gold) > MAX_CHARACTERS or not gold.isascii() or "\\begin" in gold:
        return False
    return bool(_COMMAND.search(gold)) and not _WORD.search(gold)


def verify(answer: str, gold: str) -> bool | None:
    """math-verify's verdict on two LaTeX expressions; None when it gave none in time.

    Raises:
        RuntimeError: the process can't be started.
    """
    if len(answer) > MAX_CHARACTERS:
        return None
    with _lock:
        return _ask({"answer": answer, "gold": gold})


class _Process:
    """The running process and the thread that reads what it says."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, sys.path)])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rewards.maths.fallback.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self.lines: queue.Queue[bytes] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(b"")  # the end

    def answer(self, timeout_s: float) -> Any:
        """The next line it says; None at its end or after the deadline."""
        try:
            line = self.lines.get(timeout=timeout_s)
        except queue.Empty:
            return None
        return json.loads(line) if line else None

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()


_lock = threading.Lock()
_running: _Process | None = None
_owner = 0


def _ask(question: dict[str, str]) -> bool | None:
    global _running
    process = _ready()
    try:
        assert process.process.stdin is not None
        process.process.stdin.write(json.dumps(question).encode() + b"\n")
        process.process.stdin.flush()
        answer = process.answer(DEADLINE_S)
    except BrokenPipeError:
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("same"), bool):
        process.stop()
        _running = None
        return None
    return answer["same"]


def _ready() -> _Process:
    """The running process, or a new one; a fork of this process starts its own."""
    global _running, _owner
    if _running is None or _owner != os.getpid():
        _running, _owner = _Process(), os.getpid()
        if _running.answer(START_S) != {"ready": True}:
            _running.stop()
            _running = None
            raise RuntimeError("the math-verify process does not start: python -m rewards.maths.fallback.worker")
    return _running


@atexit.register
def _stop() -> None:
    if _running is not None and _owner == os.getpid():
        _running.stop()
