"""Whole runs as processes of their own within a second: everything is imported once, then each process is forked.

Importing ColossalAI takes about 10 s; forking what has imported it takes milliseconds. The forks join a process group of
their own and run the command as a user does. Nothing of a run happens in the process that forks.
"""

import ctypes
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

Hook = Callable[[int], None]
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def import_all() -> None:
    """What a run imports. This process must stay with one thread, or its forks may hang."""
    import torch

    torch.set_num_threads(1)
    import rlvr.api
    import rlvr.pipeline  # noqa: F401
    from rlvr.boost.process import quiet

    with quiet():
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
        command: `train`, `sft` or `reward-model`, and flags.
        log: folder for what the processes print.
        processes: how many.
        hook: called in each process, with its rank, before the command.
        namespaces: network namespace of each process, by name; none: all in this one.
        address: where rank 0 listens.
        environment: variables that are set beside torchrun's.
        cards: network card of each process, with namespaces.
    """

    command: Sequence[str]
    log: Path
    processes: int = 1
    hook: Hook = lambda rank: None
    namespaces: Sequence[str] = ()
    address: str = "127.0.0.1"
    environment: dict[str, str] = field(default_factory=dict)
    cards: Sequence[str] = ()

    def run(self, limit_s: float = 90.0) -> list[Ended]:
        """Start it, wait for its end, and see that no process of it is left. Whatever is left after `limit_s` is killed."""
        self.log.mkdir(parents=True, exist_ok=True)
        port = _free_port()
        processes = [self._fork(rank, port) for rank in range(self.processes)]
        statuses = _wait(processes, limit_s)
        left = [p for p in processes if _end_descendants(p)]
        ended = []
        for rank, process in enumerate(processes):
            out, err = ((self.log / f"{rank}.{name}").read_text(errors="replace") for name in ("out", "err"))
            orphans = "\nORPHANS were left" if process in left else ""
            ended.append(Ended(rank, statuses[process], out, err + orphans))
        return ended

    def _fork(self, rank: int, port: int) -> int:
        process = os.fork()
        if process:
            return process
        status = 70
        try:
            self._settle(rank, port)
            status = _call(self.command)
        except BaseException:  # the end of this process: there is nobody above to raise to
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)

    def _settle(self, rank: int, port: int) -> None:
        os.setsid()
        for number, name in ((1, "out"), (2, "err")):
            descriptor = os.open(self.log / f"{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, number)
            os.close(descriptor)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        for name in _TORCHRUN:
            os.environ.pop(name, None)
        os.environ.update(self.environment, FAULT_RUN=str(os.getpid()))
        if self.processes > 1:
            size = str(self.processes)
            values = (str(rank), size, str(rank), size, self.address, str(port))
            os.environ.update(zip(_TORCHRUN, values, strict=True))
        if self.namespaces:
            _enter_namespace(self.namespaces[rank])
            os.environ["GLOO_SOCKET_IFNAME"] = self.cards[rank]
        self.hook(rank)


def _call(command: Sequence[str]) -> int:
    from rlvr.cli import main

    try:
        return main(list(command))
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1


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


def _end_descendants(process: int) -> bool:
    """Kill what a process left behind. Whether anything was there still some seconds after its end."""
    end = time.monotonic() + 3.0
    while left := descendants(process):
        if time.monotonic() > end:
            for process in left:
                os.kill(process, signal.SIGKILL)
            return True
        time.sleep(0.02)
    return False


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
