"""How workers start: forked by a fork server (`rewards.pool.forkserver`), or a new process for each where forking is unsafe."""

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

from rewards.errors import UserError
from rewards.own_python import own_python
from rewards.pool.limits import ANSWER_LIMIT_S, START_LIMIT_S
from rewards.pool.pickling import PackedFunction

# Workers run side by side already. Threads of a numerical library would fight for cores, and forbid forking.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")}
CAN_FORK = sys.platform.startswith("linux") and hasattr(socket, "SOCK_SEQPACKET")
MESSAGE_BYTES = 2**16
"""The largest message between the pool and the fork server."""
_END_S = 1.0
_END_OF_ALL_S = 10.0
"""A fork server ends all that its workers started, in sessions of their own too, which takes a while on a busy machine."""
KILLED = "it was killed by SIGKILL"  # as `describe_exit` has it
ORPHANED = "the process that forked it was killed"


@dataclass(frozen=True)
class ProcessSettings:
    """The settings of a process that the pool starts.

    Attributes:
        fork: become the fork server if this process can fork safely; else become one worker.
        sock, memory, stderr: file descriptors: the socket to the pool, the shared memory (-1 for the fork server), where prints go.
        parent: the pool's process.
    """

    fork: bool
    sock: int
    memory: int
    stderr: int
    parent: int
    plugins: tuple[str, ...]
    functions: tuple[PackedFunction, ...]
    memory_limit_bytes: int | None


@dataclass(frozen=True)
class WorkerSetup:
    """Settings that all worker processes of a pool share."""

    plugins: Sequence[str]
    functions: Sequence[PackedFunction]
    memory_limit_bytes: int | None


@dataclass(frozen=True)
class WorkerEvent:
    """News of a worker: alive as `process`, or dead and `how`."""

    number: int
    process: int = 0
    how: str = ""


class Process:
    """A Python process, running `forkserver.main`, with a socket to it. What it prints once it is ready goes to `prints`.

    Raises:
        UserError: the system does not let us start it.
    """

    def __init__(self, setup: WorkerSetup, sock: socket.socket, prints: int, *, memory: int = -1, fork: bool) -> None:
        self.output: IO[bytes] = tempfile.TemporaryFile()
        stderr = os.dup(prints)
        with tempfile.TemporaryFile() as settings:
            pickle.dump(
                ProcessSettings(
                    fork, sock.fileno(), memory, stderr, os.getpid(),
                    tuple(setup.plugins), tuple(setup.functions), setup.memory_limit_bytes,
                ),
                settings,
            )  # fmt: skip
            settings.seek(0)
            try:
                self.popen = subprocess.Popen(
                    own_python("rewards.pool.forkserver"),
                    stdin=settings,
                    stdout=self.output,
                    stderr=self.output,
                    pass_fds=[fd for fd in (sock.fileno(), memory, stderr) if fd >= 0],
                    start_new_session=True,
                    env={**os.environ, **_ONE_THREAD},
                )
            except OSError as error:
                self.output.close()
                raise UserError(
                    f"can't start reward workers: {sys.executable!r} can't be run ({error}); the pool needs a Python "
                    "that it may start. workers=0 scores in this process, without deadlines"
                ) from error
            finally:
                os.close(stderr)

    def output_tail(self) -> str:
        """The end of what it wrote before it was ready."""
        self.output.seek(0)
        return self.output.read()[-4000:].decode(errors="replace").strip()

    def abandon(self) -> None:
        """Forget it: it belongs to the process that this one is a fork of."""
        self.popen.returncode = 0  # so that `Popen` neither waits for it nor warns
        self.output.close()

    def end(self) -> None:
        """Kill it, if need be, and leave no zombie."""
        if self.popen.poll() is None:
            kill(self.popen.pid)
        self.popen.wait()
        self.output.close()


class ForkServerLauncher:
    """Workers forked by a fork server. Requests return at once; `events` has their results later.

    The fork server answers each request. One that does not (a module that it imports blocks, or it was stopped) is killed, and
    with it its workers.

    Attributes:
        mode: "" while it starts; "fork"; "threads" if it can't fork safely; "gone" after its end.
        hung: it was killed because it did not answer.

    Raises:
        UserError: the fork server can't start, or the functions can't be loaded; with the end of its output.
    """

    def __init__(self, setup: WorkerSetup, prints: int) -> None:
        self.sock, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = Process(setup, child, prints, fork=True)
        except BaseException:
            self.sock.close()
            raise
        finally:
            child.close()
        self.mode = ""
        self.began_s = time.monotonic()
        self.workers: dict[int, int] = {}
        self.hung = False
        self._unanswered = 0
        self._heard_s = self.began_s  # when it last answered, or was asked after it had answered all

    def fileno(self) -> int:
        return self.sock.fileno()

    def spawn(self, number: int, sock: socket.socket, memory: int) -> None:
        self.workers[number] = 0
        self._request({"fork": number}, [sock.fileno(), memory])

    def kill(self, number: int) -> None:
        """Kill a worker at once; that it is dead is told by the fork server, its parent."""
        if (process := self.workers.get(number)) and _parent_of(process) == self.process.popen.pid:
            kill(process)
        self._request({"kill": number}, [])

    def preload(self, modules: list[str]) -> None:
        """Import these before the next fork."""
        for start in range(0, len(modules), 500):
            self._request({"import": modules[start : start + 500]}, [])

    @property
    def waits(self) -> bool:
        """True while an answer is missing."""
        return self._unanswered > 0

    def _request(self, request: dict[str, Any], fds: list[int]) -> None:
        if not self._unanswered:
            self._heard_s = time.monotonic()
        self._unanswered += 1
        try:
            socket.send_fds(self.sock, [json.dumps(request).encode()], fds)
        except OSError:  # it is no more: `events` sees it, and says that all workers are dead
            pass

    def events(self) -> list[WorkerEvent]:
        """Workers that started or ended since the last call; does not wait.

        Raises:
            UserError: the start failed.
        """
        found: list[WorkerEvent] = []
        while True:
            try:
                data = self.sock.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                return found + self._on_exit()
            message = json.loads(data)
            self._heard_s = time.monotonic()
            if "failed" in message:
                raise UserError(f"reward workers can't start: {message['failed']}")
            if "ready" in message:
                self.mode = message["ready"]
            elif "answered" in message:
                self._unanswered -= 1
            elif "alive" in message:
                self.workers[message["alive"]] = message["process"]
                found.append(WorkerEvent(message["alive"], process=message["process"]))
            elif "dead" in message:
                self.workers.pop(message["dead"], None)
                found.append(WorkerEvent(message["dead"], how=message["how"]))
        if not self.mode and time.monotonic() - self.began_s > START_LIMIT_S:
            raise UserError(
                f"reward workers are not ready after {START_LIMIT_S:.0f} s; does a plugin hang when it is imported? "
                f"Their output: {self.process.output_tail() or 'none'}"
            )
        if self.mode and self._unanswered and time.monotonic() - self._heard_s > ANSWER_LIMIT_S:
            self.hung = True
            kill(self.process.popen.pid)  # the next call finds the end of its socket
        return found

    def _on_exit(self) -> list[WorkerEvent]:
        try:
            self.process.popen.wait(_END_S)
        except subprocess.TimeoutExpired:  # it closed the socket, and lives
            kill(self.process.popen.pid)
            self.process.popen.wait()
        if not self.mode and self.process.popen.returncode != -signal.SIGKILL:
            raise UserError(
                f"reward workers can't start: the process ended while loading plugins and functions "
                f"({describe_exit(self.process.popen.returncode)}). Its output: {self.process.output_tail() or 'none'}"
            )
        lost = [WorkerEvent(number, how=ORPHANED) for number in self.workers]
        for process in filter(None, self.workers.values()):
            kill(process)  # Linux has done so already
        self.workers.clear()
        self.mode = "gone"
        return lost

    def abandon(self) -> None:
        """In a fork of the pool's process: close our copies, without ending the fork server."""
        self.sock.close()
        self.process.abandon()

    def close(self) -> None:
        """End the fork server and, with it, all workers."""
        self.sock.close()
        try:
            self.process.popen.wait(_END_OF_ALL_S if self.mode else _END_S)
        except subprocess.TimeoutExpired:  # it is loading a plugin, or stuck
            pass
        self.process.end()


class ProcessLauncher:
    """Workers that each start by themselves: slower to replace, and safe where forking is not."""

    mode = "fresh"

    def __init__(self, setup: WorkerSetup, prints: int) -> None:
        self.setup, self.prints = setup, prints
        self.processes: dict[int, Process] = {}
        self.new_events: list[WorkerEvent] = []

    def spawn(self, number: int, sock: socket.socket, memory: int) -> None:
        self.processes[number] = process = Process(self.setup, sock, self.prints, memory=memory, fork=False)
        self.new_events.append(WorkerEvent(number, process=process.popen.pid))

    def kill(self, number: int) -> None:
        if number in self.processes:
            kill(self.processes[number].popen.pid)

    def preload(self, modules: list[str]) -> None:
        """Does nothing: each worker imports for itself."""

    def events(self) -> list[WorkerEvent]:
        found, self.new_events = self.new_events, []
        for number, process in list(self.processes.items()):
            code = process.popen.poll()
            if code is not None:
                del self.processes[number]
                words = process.output_tail()
                found.append(WorkerEvent(number, how=describe_exit(code) + (f": {words[-500:]}" if words else "")))
                process.end()
        return found

    def abandon(self) -> None:
        for process in self.processes.values():
            process.abandon()

    def close(self) -> None:
        for process in self.processes.values():
            process.end()
        self.processes.clear()


def _parent_of(process: int) -> int | None:
    """The parent of a process; None if there is no such process. (Numbers of processes are used again.)"""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def kill(process: int) -> None:
    """Kill a worker with all that it started."""
    for send in (os.killpg, os.kill):
        try:
            send(process, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # no group yet, or gone
            continue


def describe_exit(code: int) -> str:
    """In words: `it was killed by SIGSEGV`, `it ended with status 3`."""
    if code >= 0:
        return f"it ended with status {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"
