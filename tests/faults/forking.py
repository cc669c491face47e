"""Whole runs as processes of their own within a second: everything is imported once, then each process is forked.

Importing ColossalAI takes about 10 s; forking what has imported it takes milliseconds. The forks join a process group of
their own and run the command as a user does. Nothing of a run happens in the process that forks. `tests/ranks.py` is such a
process for tests.
"""

import ctypes
import fcntl
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from runpy import run_path

Hook = Callable[[int], None]
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PIPE_BYTES = 2**20


def import_all() -> None:
    """What a run imports. This process must stay with one thread, or its forks may hang."""
    import torch

    torch.set_num_threads(1)
    import rlvr.run.supervised  # noqa: F401
    from rlvr.boost.process import silence_libraries

    with silence_libraries():
        import colossalai.booster.plugin  # noqa: F401
    assert len(os.listdir("/proc/self/task")) == 1


@dataclass
class Ended:
    """How one process of a run ended.

    Attributes:
        status: exit status; minus the signal that killed it; None if it hung and was killed at the limit.
        out, err: what it printed.
    """

    rank: int
    status: int | None
    out: str
    err: str

    @property
    def said(self) -> str:
        return " ".join((self.out + self.err).split())


@dataclass
class Launch:
    """A run to be started.

    Attributes:
        commands: of each process: the words behind `rlvr`; a script (`.py`) with its words; or `module:function`, and what it is
            called with.
        hook: called in each process, with its rank, before the command.
        namespaces: network namespace of each process, by name; none: all in this one.
        address: where rank 0 listens.
        environment: variables that are set beside torchrun's.
        cards: network card of each process, with namespaces.
        patience_s: how long after a process's end what it started may take to end too.
    """

    commands: Sequence[Sequence[str]]
    hook: Hook = lambda rank: None
    namespaces: Sequence[str] = ()
    address: str = "127.0.0.1"
    environment: dict[str, str] = field(default_factory=dict)
    cards: Sequence[str] = ()
    patience_s: float = 30.0

    def run(self, limit_s: float = 90.0) -> list[Ended]:
        """Start it, wait for its end, and see that no process of it is left. Whatever is left after `limit_s` is killed."""
        port = _free_port()
        started = [self._fork(rank, port) for rank in range(len(self.commands))]
        try:
            statuses = _wait([process for process, _ in started], limit_s)
        except BaseException:  # the harness itself is being stopped
            for process, _ in started:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            raise
        ended = []
        for rank, (process, pipes) in enumerate(started):
            left = _end_descendants(process, self.patience_s)
            out, err = (_drain(pipe) for pipe in pipes)
            ended.append(Ended(rank, statuses[process], out, err + (f"\nORPHANS: {', '.join(left)}" if left else "")))
        return ended

    def _fork(self, rank: int, port: int) -> tuple[int, list[int]]:
        """The process, and where to read what it prints."""
        pipes = [os.pipe(), os.pipe()]
        process = os.fork()
        if process:
            for reads, writes in pipes:
                os.close(writes)
                os.set_blocking(reads, False)
            return process, [reads for reads, _ in pipes]
        status = 70
        try:
            self._settle(rank, port, [writes for _, writes in pipes])
            status = _call(self.commands[rank])
        # The end of this process: there is nobody above to raise to.
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _settle(self, rank: int, port: int, pipes: Sequence[int]) -> None:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        # Pipes, not files: a full disk must not take away the run's voice.
        for number, name, pipe in ((1, "stdout", pipes[0]), (2, "stderr", pipes[1])):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
            os.dup2(pipe, number)
            setattr(sys, name, os.fdopen(number, "w", buffering=1, closefd=False))
        for name in _TORCHRUN:
            os.environ.pop(name, None)
        os.environ.update(self.environment, FAULT_RUN=str(os.getpid()))
        if len(self.commands) > 1:
            size = str(len(self.commands))
            values = (str(rank), size, str(rank), size, self.address, str(port))
            os.environ.update(zip(_TORCHRUN, values, strict=True))
        if self.namespaces:
            _enter_namespace(self.namespaces[rank])
            os.environ["GLOO_SOCKET_IFNAME"] = self.cards[rank]
        self.hook(rank)


def _call(command: Sequence[str]) -> int:
    module, _, name = command[0].partition(":")
    try:
        if name:
            getattr(import_module(module), name)(*command[1:])
            return 0
        if module.endswith(".py"):
            sys.argv = list(command)
            run_path(module, run_name="__main__")
            return 0
        from rlvr.cli.main import main

        return main(list(command))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)


def _drain(pipe: int) -> str:
    data = b""
    try:
        while more := os.read(pipe, _PIPE_BYTES):
            data += more
    except BlockingIOError:  # somebody still holds the other end
        pass
    os.close(pipe)
    return data.decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _enter_namespace(name: str) -> None:
    with open(f"/run/netns/{name}") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0):
            raise OSError(ctypes.get_errno(), f"can't enter the network namespace {name}")


def _wait(processes: Sequence[int], limit_s: float) -> dict[int, int | None]:
    """Exit statuses; None for those that had to be killed at the limit."""
    statuses: dict[int, int | None] = {}
    end = time.monotonic() + limit_s
    while len(statuses) < len(processes):
        late = time.monotonic() > end
        for process in [p for p in processes if p not in statuses]:
            if late:
                os.kill(process, signal.SIGKILL)
            done, status = os.waitpid(process, 0 if late else os.WNOHANG)
            if done:
                statuses[process] = None if late else os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return statuses


def _end_descendants(process: int, patience_s: float) -> list[str]:
    """Kill what a process left behind. The names of what was there still some seconds after its end."""
    end = time.monotonic() + patience_s
    while left := descendants(process):
        if time.monotonic() > end:
            names = [title(process) for process in left]
            for process in left:
                with suppress(ProcessLookupError):  # it has just ended
                    os.kill(process, signal.SIGKILL)
            return names
        time.sleep(0.02)
    return []


def title(process: int) -> str:
    """A process's name: of one of Ray's actors `ray::CLASS`, else that of its program; "" if it has ended."""
    try:
        first = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0", 1)[0].decode(errors="replace")
    except OSError:
        return ""
    return first if first.startswith("ray::") else Path(first).name


def descendants(marker: int) -> list[int]:
    """Living processes whose environment names this run's process (reward workers have sessions of their own)."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"FAULT_RUN={marker}\0".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # it has just ended, or is not ours
            continue
    return [p for p in found if p != os.getpid()]
