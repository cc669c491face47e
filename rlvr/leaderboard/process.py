"""One grader's process as the leaderboard sees it: a row in, a verdict out, a deadline, memory, and what it left in its folder.

The deadline is of processor time, of the process and all that it started: on a busy machine a slow clock is nobody's fault. A grader
that waits without computing is ended after `WAITS` times as long by the clock.
"""

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

import rlvr
from rlvr.errors import UserError
from rlvr.leaderboard.cases import Case

START_S = 300.0
"""Importing may take long, by the clock."""
WAITS = 6.0
_LOOK_S = 0.2
WARM_UP = [
    Case("", r"so \boxed{\frac{1}{2}}", "0.5", True),
    Case("", "it is 7 * 6 = 42", "42", True),
    Case("", r"\boxed{(x+1)^2}", "x^2+2x+1", True),
    Case("", r"\boxed{\sqrt{2}+\pi}", r"\pi+\sqrt{2}", True),
]
Fault = Literal["", "hang", "exception"]


@dataclass(frozen=True)
class Verdict:
    """What a grader said.

    Attributes:
        correct: whether it took the answer for right; False where it failed.
        seconds: as it says itself, or until its answer was here.
        fault: a hang is one that passed its deadline, an exception also a process that ended.
        message: about the fault.
    """

    correct: bool
    seconds: float
    fault: Fault = ""
    message: str = ""


class GraderProcess:
    """A grader that is running, started anew where it had to be ended.

    Args:
        name: for messages.
        command: what to run.
        deadline_s: processor time for one row.

    Raises:
        UserError: it can't be started, or does not answer.
    """

    def __init__(self, name: str, command: Sequence[str], deadline_s: float) -> None:
        self.name, self.command, self.deadline_s = name, list(command), deadline_s
        self.folder = tempfile.TemporaryDirectory(prefix="leaderboard-")
        self.memory_bytes = 0
        self._errors = tempfile.TemporaryFile()
        self._process = self._opened()
        try:
            self._warm_up()
        except UserError:
            self.close()
            raise

    def ask(self, case: Case) -> Verdict:
        """Its verdict on a case."""
        if self._process.poll() is not None:
            self._process = self._opened()
            self._warm_up()
        return self._ask(case, self.deadline_s, WAITS * self.deadline_s)

    def look_at_memory(self) -> None:
        """Note how much memory it and its children hold now."""
        sizes = []
        for process in self._family():
            try:
                sizes.append(process.memory_info().rss)
            except psutil.Error:  # it has ended meanwhile
                continue
        self.memory_bytes = max(self.memory_bytes, sum(sizes))

    def left_behind(self) -> list[str]:
        """Files that it, or a text that it ran, made in its folder."""
        return sorted(path.name for path in Path(self.folder.name).iterdir())

    def close(self) -> None:
        """End it, with all that it started."""
        self._kill()
        self.folder.cleanup()
        self._errors.close()

    def _opened(self) -> subprocess.Popen[bytes]:
        places = [str(Path(rlvr.__file__).parents[1]), os.getcwd(), os.environ.get("PYTHONPATH", "")]
        one_thread = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        environment = os.environ | one_thread | {"PYTHONPATH": os.pathsep.join(filter(None, places))}
        try:
            process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                cwd=self.folder.name,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"grader {self.name!r} can't be started: {error.strerror}") from None
        assert process.stdin is not None and process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        return process

    def _warm_up(self) -> None:
        self._received = b""
        for case in WARM_UP:
            verdict = self._ask(case, START_S, START_S)
            if verdict.fault and not verdict.message.startswith("raised"):
                raise UserError(f"grader {self.name!r} does not answer: {verdict.message}")

    def _ask(self, case: Case, cpu_s: float, wall_s: float) -> Verdict:
        start, before_s = time.monotonic(), self._cpu_s()
        unsent = memoryview(json.dumps(case.row()).encode() + b"\n")
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                ready = [key.fileobj for key, _ in selector.select(_LOOK_S)]
                try:
                    if stdin in ready:
                        unsent = unsent[os.write(stdin.fileno(), unsent[:65536]) :]
                        if not unsent:
                            selector.unregister(stdin)
                    if stdout in ready:
                        self._received += self._read(stdout.fileno())
                except (BrokenPipeError, EOFError):
                    return self._ended(time.monotonic() - start)
                waited_s = time.monotonic() - start
                if waited_s > min(cpu_s, 1.0) and (waited_s > wall_s or self._cpu_s() - before_s > cpu_s):
                    self._kill()
                    return Verdict(False, waited_s, "hang", f"no verdict after {cpu_s:g} s")
        return self._parsed(time.monotonic() - start)

    @staticmethod
    def _read(descriptor: int) -> bytes:
        received = os.read(descriptor, 65536)
        if not received:
            raise EOFError
        return received

    def _parsed(self, waited_s: float) -> Verdict:
        line, _, self._received = self._received.partition(b"\n")
        try:
            answer: Any = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not {"correct", "error"} & set(answer):
            text = line[:80].decode(errors="replace")
            raise UserError(
                f"grader {self.name!r} answered {text!r}; each line must be a JSON object with `correct` or `error`"
            )
        seconds = answer.get("seconds")
        seconds = float(seconds) if isinstance(seconds, int | float) else waited_s
        if "error" in answer:
            return Verdict(False, seconds, "exception", f"raised {answer['error']}")
        return Verdict(bool(answer["correct"]), seconds)

    def _ended(self, waited_s: float) -> Verdict:
        self._kill()
        self._errors.seek(0)
        said = self._errors.read()[-2000:].decode(errors="replace").strip().splitlines()
        return Verdict(False, waited_s, "exception", f"its process ended: {said[-1] if said else 'without a message'}")

    def _family(self) -> list[psutil.Process]:
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        except psutil.Error:
            return []

    def _cpu_s(self) -> float:
        total = 0.0
        for process in self._family():
            try:
                total += sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
        return total

    def _kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # what it was sent last stays unread
                    pass
