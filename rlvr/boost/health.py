"""The phase of each process, known to all, so that a lost or late process can be named.

Every process writes its phase into the process group's store as it enters it (`enter_phase`). One that gives up waiting in
a collective writes that too, reads what the others wrote, and stops with one message (`report_lost_processes`): who is
stuck or gone, on which machine, in which phase, and since when. Under NCCL a time-out ends the process inside torch, which
names the collective only.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist

from rlvr.boost.host import release_spare_memory
from rlvr.boost.process import host_name
from rlvr.boost.timeline import TRAINER, Span, record
from rlvr.errors import UserError

SETTLE_S = 3.0
"""For the others, who give up at about the same time, to say so."""
STORE_S = 10.0
"""For the store to answer, which may be beyond a broken network."""
WAITED = "gave up waiting"
# Parts of what gloo, NCCL and torch's store say of a peer that is late or gone. They raise plain RuntimeErrors, so that their
# words are all there is to go by.
_SIGNS = (
    "timed out waiting", "connection closed by peer", "connection reset by peer", "broken pipe", "connection refused",
    "connection was likely closed", "socket closed", "no route to host", "network is unreachable", "wait timeout after",
    "failed to recv", "application timeout caused pair closure", "connect timeout",
)  # fmt: skip


class ProcessesLost(UserError):
    """Another process is stuck, has ended, or can't be reached; the message names it. Raised by whoever waited for it."""


def enter_phase(phase: str) -> None:
    """Tell the other processes that this one begins a phase; memory that the last one has freed is not kept for it."""
    release_spare_memory()
    _reporter.enter(phase)


def report_progress(done: int, total: int) -> None:
    """Say how much of its present work this process has done, such as passes of an optimizer step; 0 as work begins."""
    _reporter.progress(done, total)


def present_work() -> "Work":
    """What this process is doing."""
    return _reporter.work


@contextmanager
def report_lost_processes() -> Iterator[None]:
    """Turn the error of a collective that can't be finished into a message that names who is stuck or gone.

    Any other error is passed on as it is, after the other processes have been told of it.

    Raises:
        ProcessesLost: another process is stuck, has ended, or can't be reached.
    """
    try:
        yield
    except RuntimeError as error:
        if not _is_peer_failure(error):
            _reporter.stop(_in_short(error))
            raise
        _reporter.stop(WAITED)
        time.sleep(SETTLE_S)
        raise ProcessesLost(describe(_reporter.phase, dist.get_rank(), _reporter.read(), str(error))) from None
    except Exception as error:
        _reporter.stop(_in_short(error))
        raise


def _is_peer_failure(error: RuntimeError) -> bool:
    """True if a collective failed because of another process."""
    many = dist.is_initialized() and dist.get_world_size() > 1
    text = str(error).lower()
    return many and (isinstance(error, dist.DistError) or any(sign in text for sign in _SIGNS))


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


@dataclass(frozen=True)
class ProcessStatus:
    """The latest that a process has written.

    Attributes:
        host: its machine.
        phase: such as "rollout" or "update".
        since_s: when the phase began, in seconds since 1970 by that machine's clock.
        stopped: "" while it works, WAITED once it has given up waiting for others, else the error that ended it.
    """

    host: str
    phase: str
    since_s: float
    stopped: str = ""


@dataclass(frozen=True)
class Work:
    """What a process is doing: its phase and, where that is counted, how much of a piece of work in it is done.

    Attributes:
        phase: such as "rollout" or "update".
        since_s: when the phase began, in seconds since 1970.
        done, total: of the piece of work; 0 where nothing is counted.
        counted_since_s: when that piece began.
    """

    phase: str
    since_s: float
    done: int = 0
    total: int = 0
    counted_since_s: float = 0.0


class StatusReporter:
    """Writes this process's status into the store, and reads everyone's. With one process there is nothing to write.

    To enter a phase costs one message to the store, which is little compared with a phase.
    """

    def __init__(self) -> None:
        self.work = Work("start", time.time())
        self._entered_s = self.work.since_s  # a phase that is entered again while it lasts is one on the timeline

    @property
    def phase(self) -> str:
        return self.work.phase

    def enter(self, phase: str) -> None:
        """Tell the others that this process begins a phase."""
        now_s = time.time()
        if phase != self.phase:
            record(Span(TRAINER, self.phase, self._entered_s, now_s))
            self._entered_s = now_s
        self.work = Work(phase, now_s)
        self._write("")

    def progress(self, done: int, total: int) -> None:
        """Count; the others are not told."""
        before = self.work
        begins = total != before.total or done < before.done
        since_s = time.time() if begins else before.counted_since_s
        self.work = Work(before.phase, before.since_s, done, total, since_s)

    def stop(self, why: str) -> None:
        """Tell the others why this process does not go on."""
        _within(STORE_S, lambda: self._write(why))

    def _write(self, stopped: str) -> None:
        if dist.is_initialized() and dist.get_world_size() > 1:
            status = ProcessStatus(host_name(), self.phase, self.work.since_s, stopped[:500])
            _store().set(_key(dist.get_rank()), json.dumps(asdict(status)))

    def read(self) -> list[ProcessStatus | None] | None:
        """Every process's status, in rank order, None for those that never wrote; None if the store does not answer."""
        return _within(STORE_S, lambda: [_read(rank) for rank in range(dist.get_world_size())])


_reporter = StatusReporter()


def _key(rank: int) -> str:
    return f"rlvr/status/{rank}"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _read(rank: int) -> ProcessStatus | None:
    store = _store()
    return ProcessStatus(**json.loads(store.get(_key(rank)))) if store.check([_key(rank)]) else None


def _within(limit_s: float, ask: Any) -> Any:
    """The answer of `ask`; None if it fails or takes longer, as it does when the store's machine can't be reached."""
    found: list[Any] = []  # in a thread, which is left behind if the store does not answer

    def run() -> None:
        try:
            found.append(ask())
        except RuntimeError:  # the store is gone: then there is no answer
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    return found[0] if found else None


def describe(phase: str, rank: int, statuses: list[ProcessStatus | None] | None, reason: str) -> str:
    """The message: the phase in which this process waited, then every process's status, the culprits first."""
    head = f"rank {rank} on {host_name()} waited for the other processes in phase {phase!r} and gave up"
    tail = f"(said: {_first_line(reason)}) Go on from the last checkpoint with --resume."
    if statuses is None:
        return (
            f"{head}. Rank 0's machine, which keeps account of all, does not answer: it is gone, or the network to it is. "
            f"{tail}"
        )
    lines = [(_is_well(status), number, _line(number, status)) for number, status in enumerate(statuses)]
    return "\n  ".join([f"{head}:", *(line for _, _, line in sorted(lines)), tail])


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:200]


def _is_well(status: ProcessStatus | None) -> bool:
    return status is not None and status.stopped == WAITED


def _line(rank: int, status: ProcessStatus | None) -> str:
    if status is None:
        return f"rank {rank}: never began; its machine is gone or can't be reached"
    since = f"phase {status.phase!r} since {max(0.0, time.time() - status.since_s):.0f} s"
    if not status.stopped:
        return f"rank {rank} on {status.host}: STUCK, gone or cut off in {since}"
    if status.stopped == WAITED:
        return f"rank {rank} on {status.host}: waited in phase {status.phase!r}"
    return f"rank {rank} on {status.host}: stopped in phase {status.phase!r}: {status.stopped}"
