"""What each process is doing, told to the others, so that a lost or late one can be named.

Every process writes its phase into the process group's store as it enters it. Whoever gives up waiting in a collective
writes that too, reads what the others wrote, and stops with one message: who is stuck or gone, on which machine, in which
phase, and since when. Under NCCL a time-out ends the process inside torch, which names the collective only.
"""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch.distributed as dist

from rlvr.boost.process import host_name
from rlvr.errors import UserError

SETTLE_S = 3.0  # for the others, who give up at about the same time, to say so
STORE_S = 10.0  # for the store to answer, which may be beyond a broken network
# What gloo, NCCL and torch's store say of a peer that is late or gone; they raise plain RuntimeErrors.
_SIGNS = (
    "timed out waiting", "connection closed by peer", "connection reset by peer", "broken pipe", "connection refused",
    "connection was likely closed", "socket closed", "no route to host", "network is unreachable", "wait timeout after",
    "failed to recv", "application timeout caused pair closure", "connect timeout",
)  # fmt: skip


class ProcessesLost(UserError):
    """Another process is stuck, has ended, or can't be reached; the message names it. Raised by whoever waited for it."""


@dataclass(frozen=True)
class Place:
    """Where a process stands.

    Attributes:
        host: its machine.
        phase: what it is doing.
        since_s: when it began, in seconds since 1970 by that machine's clock.
        stopped: why it does nothing any more: "" while it works, WAITED once it has given up waiting for others, else
            the error that ended it.
    """

    host: str
    phase: str
    since_s: float
    stopped: str = ""


WAITED = "gave up waiting"


class Board:
    """The phase of this process, and those of all others. With one process nobody is told.

    To enter a phase costs one message to the store: nothing beside a phase.
    """

    def __init__(self) -> None:
        self.phase, self.since_s = "start", time.time()

    def enter(self, phase: str) -> None:
        """Tell the others that this process begins a phase."""
        self.phase, self.since_s = phase, time.time()
        self._write("")

    def stop(self, why: str) -> None:
        """Tell the others why this process does not go on."""
        _within(STORE_S, lambda: self._write(why))

    def _write(self, stopped: str) -> None:
        if dist.is_initialized() and dist.get_world_size() > 1:
            place = Place(host_name(), self.phase, self.since_s, stopped[:500])
            _store().set(_key(dist.get_rank()), json.dumps(asdict(place)))

    def read(self) -> list[Place | None] | None:
        """Every process's place, in rank order, None for those that never said; None if the store does not answer."""
        return _within(STORE_S, lambda: [_read(rank) for rank in range(dist.get_world_size())])


board = Board()


def _key(rank: int) -> str:
    return f"rlvr/place/{rank}"


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


def _read(rank: int) -> Place | None:
    store = _store()
    return Place(**json.loads(store.get(_key(rank)))) if store.check([_key(rank)]) else None


def _within(limit_s: float, ask: Any) -> Any:
    """What `ask` returns; None if it fails or takes longer, as it does when the store's machine can't be reached."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(ask())
        except RuntimeError:  # the store is gone: then there is no answer
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    return found[0] if found else None


@contextmanager
def naming_the_lost() -> Iterator[None]:
    """Turn the error of a collective that can't be finished into a message that names who is stuck or gone.

    Any other error goes on as it is, after the other processes have been told of it.

    Raises:
        ProcessesLost: another process is stuck, has ended, or can't be reached.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_loss(error):
            board.stop(_in_short(error))
            raise
        board.stop(WAITED)
        time.sleep(SETTLE_S)
        raise ProcessesLost(describe(board.phase, dist.get_rank(), board.read(), str(error))) from None
    except Exception as error:
        board.stop(_in_short(error))
        raise


def is_loss(error: RuntimeError) -> bool:
    """Whether a collective failed because of another process."""
    many = dist.is_initialized() and dist.get_world_size() > 1
    text = str(error).lower()
    return many and (isinstance(error, dist.DistError) or any(sign in text for sign in _SIGNS))


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def describe(phase: str, rank: int, places: list[Place | None] | None, reason: str) -> str:
    """The message: what this process waited in, then every process's place, the culprits first."""
    head = f"rank {rank} on {host_name()} waited for the other processes in phase {phase!r} and gave up"
    tail = f"(said: {_first_line(reason)}) Go on from the last checkpoint with --resume."
    if places is None:
        return (
            f"{head}. Rank 0's machine, which keeps account of all, does not answer: it is gone, or the network to it is. "
            f"{tail}"
        )
    lines = [(_is_well(place), number, _line(number, place)) for number, place in enumerate(places)]
    return "\n  ".join([f"{head}:", *(line for _, _, line in sorted(lines)), tail])


def _first_line(text: str) -> str:
    return text.strip().split("\n")[0][:200]


def _is_well(place: Place | None) -> bool:
    return place is not None and place.stopped == WAITED


def _line(rank: int, place: Place | None) -> str:
    if place is None:
        return f"rank {rank}: never began; its machine is gone or can't be reached"
    since = f"phase {place.phase!r} since {max(0.0, time.time() - place.since_s):.0f} s"
    if not place.stopped:
        return f"rank {rank} on {place.host}: STUCK, gone or cut off in {since}"
    if place.stopped == WAITED:
        return f"rank {rank} on {place.host}: waited in phase {place.phase!r}"
    return f"rank {rank} on {place.host}: stopped in phase {place.phase!r}: {place.stopped}"
