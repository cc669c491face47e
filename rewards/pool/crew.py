"""The workers as the pool sees them: who is idle, who is busy with what, who is slow, who is dying."""

import os
import pickle
import socket
import time
from dataclasses import dataclass, field

from rewards.errors import UserError
from rewards.pool import wire
from rewards.pool.progress import Progress
from rewards.pool.starting import CAN_FORK, Event, FreshProcesses, Load, Zygotes
from rewards.pool.work import Chunk

READ_BYTES = 2**18
_FEW_STARTS = 5
_LOOK_S = 0.1
NOT_NEEDED = "it is not needed"


@dataclass(eq=False)
class Worker:
    """One worker process.

    Attributes:
        process: its number in the system; 0 until it is known.
        chunk: what it works on.
        burns: it uses a processor, rather than sleep, as far as we know.
        doom: it was told to die, for this reason.
    """

    number: int
    sock: socket.socket
    progress: Progress
    started_s: float
    process: int = 0
    chunk: Chunk | None = None
    burns: bool = True
    doom: str = ""
    chunks: int = 0  # that it was given
    full: bool = False  # the socket takes no more of `unsent` now
    frames: wire.Frames = field(default_factory=wire.Frames)
    unsent: bytearray = field(default_factory=bytearray)
    received: bytes = b""  # lines of its present chunk
    finished: bool = False  # they are all of them
    waited_s: float = 0.0  # for a processor, since it stepped aside
    waited_before_s: float = 0.0
    seen_s: float = 0.0
    looked_s: float = 0.0

    def give(self, chunk: Chunk) -> None:
        """Hand it a chunk.

        Raises:
            UserError: a sample can't be pickled.
        """
        samples = [chunk.pending.samples[i] for i in chunk.indices]
        try:
            payload = pickle.dumps((chunk.function, samples), protocol=pickle.HIGHEST_PROTOCOL)
        # Pickling runs the methods of what stands in the user's columns: anything may come of it, and all of it is this.
        except Exception as error:
            raise UserError(
                f"a sample can't be sent to a worker process: {type(error).__name__}: {error}; data columns must be plain values"
            ) from error
        self.progress.reset()
        self.chunk, self.received, self.finished = chunk, b"", False
        self.chunks += 1
        self.unsent += wire.frame(payload)

    def flush(self) -> None:
        """Send what the socket takes now."""
        try:
            while self.unsent:
                del self.unsent[: self.sock.send(self.unsent)]
        except BlockingIOError:
            pass
        except OSError:  # it is dying: the news of its death will come
            self.unsent.clear()
        self.full = bool(self.unsent)

    def read(self, most: int) -> bytes | None:
        """What there is to read: b"" at the end, None if there is nothing now."""
        try:
            return self.sock.recv(most)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    @property
    def call(self) -> int:
        """The call of its chunk that it is on; -1 before the first. What it wrote there may be anything."""
        most = self.chunk.calls - 1 if self.chunk is not None else -1
        return min(max(self.progress.index, -1), most)

    @property
    def cold(self) -> bool:
        """Whether it has done next to nothing yet."""
        return self.chunks == 1 and self.call < 5

    def on_call_s(self, now_s: float) -> float:
        """Seconds on its present call; 0 before the first."""
        if self.chunk is None or self.call < 0:
            return 0.0
        since_s = self.progress.since_s
        return now_s - (since_s if self.chunk.sent_s <= since_s <= now_s else self.chunk.sent_s)

    def step_aside(self) -> None:
        """It is long on one call: it shall go no further, and we keep an eye on what it does."""
        self.progress.stop()
        self.burns, self.looked_s = True, 0.0
        self.waited_before_s = self.waited_s = 0.0

    def look_at_cpu(self, now_s: float) -> None:
        """Learn, every now and then, whether it sleeps, and how long it has waited for a processor since it stepped aside."""
        if now_s - self.looked_s < _LOOK_S:
            return
        times = cpu_times(self.process)
        if times is None:
            return
        ran_s, waited_s = times
        if self.looked_s:
            self.burns = ran_s + waited_s - self.seen_s > 0.3 * (now_s - self.looked_s)
            self.waited_s = waited_s - self.waited_before_s
        else:
            self.waited_before_s = waited_s
        self.seen_s, self.looked_s = ran_s + waited_s, now_s

    def close(self) -> None:
        self.sock.close()
        self.progress.close()


def cpu_times(process: int) -> tuple[float, float] | None:
    """Seconds that a process ran, and that it could have run but waited for a processor; None if the platform is silent."""
    try:
        with open(f"/proc/{process}/schedstat", "rb") as file:
            ran, waited = file.read().split()[:2]
    except (OSError, ValueError):
        return None
    return int(ran) / 1e9, int(waited) / 1e9


class Crew:
    """Starts workers and hears of their deaths, by forking where that is safe.

    `open` and `deaths` raise UserError where workers can't start, or die before they do anything.
    """

    def __init__(self, load: Load) -> None:
        self.load = load
        self.workers: dict[int, Worker] = {}
        self.false_starts = 0
        self._next = 0
        self._home: Zygotes | FreshProcesses = FreshProcesses(load)

    def open(self) -> None:
        if CAN_FORK:
            self._home = Zygotes(self.load)

    @property
    def ready(self) -> bool:
        return self._home.mode in ("fork", "fresh")

    @property
    def forks(self) -> bool:
        """Whether a worker costs a millisecond and little memory."""
        return isinstance(self._home, Zygotes)

    def fileno(self) -> int | None:
        """Where news of workers comes; None if one has to ask."""
        return self._home.fileno() if isinstance(self._home, Zygotes) else None

    def hire(self) -> Worker:
        """A new worker; it can be given work at once."""
        ours, theirs = socket.socketpair()
        memory = Progress.create()
        try:
            ours.setblocking(False)
            self._next += 1
            worker = Worker(self._next, ours, Progress(memory), time.monotonic())
            worker.progress.reset()
            self._home.spawn(worker.number, theirs, memory)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(memory)
        self.workers[worker.number] = worker
        return worker

    def kill(self, worker: Worker, why: str) -> None:
        """Its death will be among `deaths`. Without a reason of ours (""), it is how it ends that counts."""
        if not worker.doom:
            worker.doom = why
            self._home.kill(worker.number)

    def preload(self, modules: list[str]) -> None:
        self._home.preload(modules)

    def deaths(self) -> list[tuple[Worker, str]]:
        """Who has died and how; does not wait."""
        dead: list[tuple[Worker, str]] = []
        for event in self._home.events():
            worker = self.workers.get(event.number)
            if worker is not None:
                self._note(worker, event, dead)
        return dead

    def _note(self, worker: Worker, event: Event, dead: list[tuple[Worker, str]]) -> None:
        if not event.how:
            worker.process = event.process
            return
        del self.workers[worker.number]
        dead.append((worker, event.how))
        if worker.progress.index >= 0:
            self.false_starts = 0
        elif worker.doom != NOT_NEEDED:
            self.false_starts += 1
        if self.false_starts >= _FEW_STARTS:
            raise UserError(
                f"{self.false_starts} reward workers in a row died before they did anything; the last: {event.how}"
            )

    @property
    def must_move(self) -> bool:
        """Whether workers can't be started in the way they were."""
        return self._home.mode in ("threads", "gone")

    def move(self) -> None:
        """Start them in another way, or by another zygote; `fileno` is another then."""
        gone = self._home.mode == "gone"
        self._home.close()
        if not gone:  # something that the zygote loaded runs threads, and must not be forked
            self._home = FreshProcesses(self.load)
            return
        self.false_starts += 1
        if self.false_starts >= _FEW_STARTS:
            raise UserError(
                "the process that forks reward workers was killed again and again; is there too little memory?"
            )
        self._home = Zygotes(self.load)

    def abandon(self) -> None:
        """In a fork of the pool's process: let go of them."""
        self._home.abandon()
        for worker in self.workers.values():
            worker.close()

    def close(self) -> None:
        """Kill all."""
        self._home.close()
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
