"""Starting processes from the pool's side: one zygote that forks workers, or one fresh process for each worker."""

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

import rewards
from rewards.errors import UserError
from rewards.pool.carry import Parcel
from rewards.pool.zygote import MESSAGE_BYTES, Settings, how_it_ended, kill

START_LIMIT_S = 60.0
# The path of this process, and the very package that this process has, though another of its name came first there.
_BOOT = """
import importlib.util, sys
file, sys.path[:] = sys.argv[1], sys.argv[2:]
spec = importlib.util.spec_from_file_location("rewards", file)
sys.modules["rewards"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
from rewards.pool.zygote import main
main()
"""
# Workers run side by side already. Threads of a numerical library would fight for cores, and forbid forking.
_ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "VECLIB_MAXIMUM", "NUMEXPR")}
CAN_FORK = sys.platform.startswith("linux") and hasattr(socket, "SOCK_SEQPACKET")


@dataclass(frozen=True)
class Load:
    """What every process of a pool loads."""

    plugins: Sequence[str]
    functions: Sequence[Parcel]
    memory_limit_bytes: int | None


ORPHANED = "the process that forked it was killed"


@dataclass(frozen=True)
class Event:
    """News of a worker: alive as `process`, or dead and `how`."""

    number: int
    process: int = 0
    how: str = ""


class Process:
    """A Python process of ours with a socket to it.

    Raises:
        UserError: the system does not let us start it.
    """

    def __init__(self, load: Load, sock: socket.socket, *, memory: int = -1, fork: bool) -> None:
        self.last_words: IO[bytes] = tempfile.TemporaryFile()
        stderr = _stderr()
        with tempfile.TemporaryFile() as settings:
            pickle.dump(
                Settings(
                    fork, sock.fileno(), memory, stderr, os.getpid(),
                    tuple(load.plugins), tuple(load.functions), load.memory_limit_bytes,
                ),
                settings,
            )  # fmt: skip
            settings.seek(0)
            try:
                self.popen = subprocess.Popen(
                    [sys.executable or "python3", "-P", "-c", _BOOT, str(rewards.__file__), *map(str, sys.path)],
                    stdin=settings,
                    stdout=self.last_words,
                    stderr=self.last_words,
                    pass_fds=[fd for fd in (sock.fileno(), memory, stderr) if fd >= 0],
                    start_new_session=True,
                    env={**os.environ, **_ONE_THREAD},
                )
            except OSError as error:
                self.last_words.close()
                raise UserError(
                    f"can't start reward workers: {sys.executable!r} can't be run ({error}); the pool needs a Python "
                    "that it may start. workers=0 scores in this process, without deadlines"
                ) from error
            finally:
                os.close(stderr)

    def said(self) -> str:
        """The end of what it wrote before it was ready."""
        self.last_words.seek(0)
        return self.last_words.read()[-4000:].decode(errors="replace").strip()

    def abandon(self) -> None:
        """Forget it: it belongs to the process that this one is a fork of."""
        self.popen.returncode = 0  # so that it is not waited for, nor missed
        self.last_words.close()

    def end(self) -> None:
        """Kill it, if need be, and leave no zombie."""
        if self.popen.poll() is None:
            kill(self.popen.pid)
        self.popen.wait()
        self.last_words.close()


class Zygotes:
    """Workers forked by a zygote. Everything is asked for and answered later, in `events`.

    Raises:
        UserError: the zygote can't start, or the functions can't be loaded; with its last words.
    """

    def __init__(self, load: Load) -> None:
        self.sock, child = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.process = Process(load, child, fork=True)
        except BaseException:
            self.sock.close()
            raise
        finally:
            child.close()
        self.mode = ""
        self.began_s = time.monotonic()
        self.workers: dict[int, int] = {}

    def fileno(self) -> int:
        return self.sock.fileno()

    def spawn(self, number: int, sock: socket.socket, memory: int) -> None:
        self.workers[number] = 0
        self._order({"fork": number}, [sock.fileno(), memory])

    def kill(self, number: int) -> None:
        self._order({"kill": number}, [])

    def preload(self, modules: list[str]) -> None:
        """Import these before the next fork."""
        for start in range(0, len(modules), 500):
            self._order({"import": modules[start : start + 500]}, [])

    def _order(self, order: dict[str, Any], fds: list[int]) -> None:
        try:
            socket.send_fds(self.sock, [json.dumps(order).encode()], fds)
        except OSError:  # it is no more: `events` sees it, and says that all workers are dead
            pass

    def events(self) -> list[Event]:
        """What has become of the workers; does not wait.

        Raises:
            UserError: the start failed.
        """
        found: list[Event] = []
        while True:
            try:
                data = self.sock.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                return found + self._gone()
            message = json.loads(data)
            if "failed" in message:
                raise UserError(f"reward workers can't start: {message['failed']}")
            if "ready" in message:
                self.mode = message["ready"]
            elif "alive" in message:
                self.workers[message["alive"]] = message["process"]
                found.append(Event(message["alive"], process=message["process"]))
            elif "dead" in message:
                self.workers.pop(message["dead"], None)
                found.append(Event(message["dead"], how=message["how"]))
        if not self.mode and time.monotonic() - self.began_s > START_LIMIT_S:
            raise UserError(
                f"reward workers are not ready after {START_LIMIT_S:.0f} s; does a plugin hang when it is imported? "
                f"Their last words: {self.process.said() or 'none'}"
            )
        return found

    def _gone(self) -> list[Event]:
        self.process.popen.wait()
        if not self.mode and self.process.popen.returncode != -signal.SIGKILL:
            raise UserError(
                f"reward workers can't start: the process ended while loading plugins and functions "
                f"({how_it_ended(self.process.popen.returncode)}). Its last words: {self.process.said() or 'none'}"
            )
        lost = [Event(number, how=ORPHANED) for number in self.workers]
        for process in filter(None, self.workers.values()):
            kill(process)  # Linux has done so already
        self.workers.clear()
        self.mode = "gone"
        return lost

    def abandon(self) -> None:
        """In a fork of the pool's process: let go of it."""
        self.sock.close()
        self.process.abandon()

    def close(self) -> None:
        """End the zygote and, through it, all workers."""
        self.sock.close()
        try:
            self.process.popen.wait(1.0)
        except subprocess.TimeoutExpired:  # it is loading a plugin
            pass
        self.process.end()


class FreshProcesses:
    """Workers that each start by themselves: slower to replace, and safe where forking is not."""

    mode = "fresh"

    def __init__(self, load: Load) -> None:
        self.load = load
        self.processes: dict[int, Process] = {}
        self.unheard: list[Event] = []

    def spawn(self, number: int, sock: socket.socket, memory: int) -> None:
        self.processes[number] = process = Process(self.load, sock, memory=memory, fork=False)
        self.unheard.append(Event(number, process=process.popen.pid))

    def kill(self, number: int) -> None:
        if number in self.processes:
            kill(self.processes[number].popen.pid)

    def preload(self, modules: list[str]) -> None:
        """Nothing: there is nobody to import them before the next worker."""

    def events(self) -> list[Event]:
        found, self.unheard = self.unheard, []
        for number, process in list(self.processes.items()):
            code = process.popen.poll()
            if code is not None:
                del self.processes[number]
                words = process.said()
                found.append(Event(number, how=how_it_ended(code) + (f": {words[-500:]}" if words else "")))
                process.end()
        return found

    def abandon(self) -> None:
        for process in self.processes.values():
            process.abandon()

    def close(self) -> None:
        for process in self.processes.values():
            process.end()
        self.processes.clear()


def _stderr() -> int:
    """A copy of this process's stderr, or of nowhere."""
    try:
        return os.dup(2)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)
