"""Worker processes as the scheduler sees them: `Worker` is one, `WorkerGroup` starts, kills and replaces them."""

import os
import pickle
import socket
import time
from dataclasses import dataclass, field

from rewards.errors import UserError
from rewards.pool import protocol
from rewards.pool.launch import CAN_FORK, ForkServerLauncher, ProcessLauncher, WorkerEvent, WorkerSetup
from rewards.pool.output import Output
from rewards.pool.protocol import Progress
from rewards.pool.submissions import Chunk

READ_BYTES = 2**18
MAX_FALSE_STARTS = 5
_MEASURE_S, _MEASURE_LATER = 0.1, 1.5
"""The use of the processor is measured first after so long, then after so many times longer each time: most hang until the end."""
NOT_NEEDED = "it is not needed"


@dataclass(eq=False)
class Worker:
    """One worker process.

    Attributes:
        process: its number in the system; 0 until it is known.
        chunk: what it works on.
        uses_cpu: it computes rather than sleeps, as far as is known.
        kill_reason: why it was killed; "" while it was not.
    """

    number: int
    sock: socket.socket
    progress: Progress
    started_s: float
    process: int = 0
    chunk: Chunk | None = None
    uses_cpu: bool = True
    kill_reason: str = ""
    chunks: int = 0  # assigned to it so far
    full: bool = False  # the socket takes no more of `unsent` now
    frames: protocol.FrameReader = field(default_factory=protocol.FrameReader)
    unsent: bytearray = field(default_factory=bytearray)
    received: bytes = b""  # lines of its present chunk
    finished: bool = False  # `received` is complete
    waited_s: float = 0.0  # for a processor, since it became slow
    waited_before_s: float = 0.0
    cpu_seen_s: float = 0.0
    measured_s: float = 0.0
    measure_after_s: float = _MEASURE_S

    def assign(self, chunk: Chunk) -> None:
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
        self.unsent += protocol.frame(payload)

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
        """Bytes from the socket: b"" at the end, None if there are none now."""
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
        """True for its first few calls."""
        return self.chunks == 1 and self.call < 5

    def on_call_s(self, now_s: float) -> float:
        """Seconds on its present call; 0 before the first."""
        if self.chunk is None or self.call < 0:
            return 0.0
        since_s = self.progress.since_s
        return now_s - (since_s if self.chunk.sent_s <= since_s <= now_s else self.chunk.sent_s)

    def stop_after_call(self) -> None:
        """Its call is slow: it must not begin another, and its use of the processor is watched."""
        self.progress.stop()
        self.uses_cpu, self.measured_s, self.measure_after_s = True, 0.0, _MEASURE_S
        self.waited_before_s = self.waited_s = 0.0

    def measure_cpu(self, now_s: float, *, at_once: bool = False) -> None:
        """Update `uses_cpu` and `waited_s`: now and then, or at once."""
        if now_s - self.measured_s < self.measure_after_s and not at_once:
            return
        times = cpu_times(self.process)
        if times is None:
            return
        ran_s, waited_s = times
        if self.measured_s:
            self.uses_cpu = ran_s + waited_s - self.cpu_seen_s > 0.3 * (now_s - self.measured_s)
            self.waited_s = waited_s - self.waited_before_s
            self.measure_after_s *= _MEASURE_LATER
        else:
            self.waited_before_s = waited_s
        self.cpu_seen_s, self.measured_s = ran_s + waited_s, now_s

    def close(self) -> None:
        self.sock.close()
        self.progress.close()


def cpu_times(process: int) -> tuple[float, float] | None:
    """Seconds that a process ran, and that it could have run but waited for a processor; None where the platform does not say."""
    try:
        with open(f"/proc/{process}/schedstat", "rb") as file:
            ran, waited = file.read().split()[:2]
    except (OSError, ValueError):
        return None
    return int(ran) / 1e9, int(waited) / 1e9


class WorkerGroup:
    """Starts and kills workers and reports their deaths; forks them where that is safe.

    `open` and `deaths` raise UserError where workers can't start, or die before they do anything.
    """

    def __init__(self, setup: WorkerSetup) -> None:
        self.setup = setup
        self.workers: dict[int, Worker] = {}
        self.false_starts = 0
        self._next = 0
        self._output = Output()
        self._preloads = True
        self._launcher: ForkServerLauncher | ProcessLauncher = ProcessLauncher(setup, self._output.writer)

    def open(self) -> None:
        if CAN_FORK:
            self._launcher = ForkServerLauncher(self.setup, self._output.writer)

    @property
    def ready(self) -> bool:
        return self._launcher.mode in ("fork", "fresh")

    @property
    def forks(self) -> bool:
        """True where workers are forked, which takes a millisecond and little memory."""
        return isinstance(self._launcher, ForkServerLauncher)

    def fileno(self) -> int | None:
        """File descriptor that is readable when `deaths` has news; None where it must be polled."""
        return self._launcher.fileno() if isinstance(self._launcher, ForkServerLauncher) else None

    def start(self) -> Worker:
        """A new worker; it can be given work at once."""
        ours, theirs = socket.socketpair()
        memory = Progress.create()
        try:
            ours.setblocking(False)
            self._next += 1
            worker = Worker(self._next, ours, Progress(memory), time.monotonic())
            worker.progress.reset()
            self._launcher.spawn(worker.number, theirs, memory)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(memory)
        self.workers[worker.number] = worker
        return worker

    def kill(self, worker: Worker, why: str) -> None:
        """Kill it; `deaths` reports it later. With `why` "", the outcome names how it ended instead."""
        if not worker.kill_reason:
            worker.kill_reason = why
            self._launcher.kill(worker.number)

    @property
    def waits(self) -> bool:
        """True while the fork server owes an answer, and `deaths` must be asked whether it hangs."""
        return isinstance(self._launcher, ForkServerLauncher) and self._launcher.waits

    def preload(self, modules: list[str]) -> None:
        """Import these where workers are forked; not any more once a fork server hung."""
        if self._preloads:
            self._launcher.preload(modules)

    def deaths(self) -> list[tuple[Worker, str]]:
        """Workers that died since the last call, each with how; does not wait."""
        dead: list[tuple[Worker, str]] = []
        for event in self._launcher.events():
            worker = self.workers.get(event.number)
            if worker is not None:
                self._apply(worker, event, dead)
        return dead

    def _apply(self, worker: Worker, event: WorkerEvent, dead: list[tuple[Worker, str]]) -> None:
        if not event.how:
            worker.process = event.process
            return
        del self.workers[worker.number]
        dead.append((worker, event.how))
        if worker.progress.index != protocol.BEFORE_THE_FIRST:  # a worker may have written anything there
            self.false_starts = 0
        elif worker.kill_reason != NOT_NEEDED:
            self.false_starts += 1
        if self.false_starts >= MAX_FALSE_STARTS:
            raise UserError(
                f"{self.false_starts} reward workers in a row died before they did anything; the last: {event.how}"
            )

    @property
    def needs_new_launcher(self) -> bool:
        """True where workers can no longer be started by the present launcher."""
        return self._launcher.mode in ("threads", "gone")

    def replace_launcher(self) -> None:
        """Use another fork server, or none; `fileno` changes."""
        gone = self._launcher.mode == "gone"
        if isinstance(self._launcher, ForkServerLauncher) and self._launcher.hung:
            self._preloads = False
        self._launcher.close()
        if not gone:  # something that the fork server loaded runs threads, and must not be forked
            self._launcher = ProcessLauncher(self.setup, self._output.writer)
            return
        self.false_starts += 1
        if self.false_starts >= MAX_FALSE_STARTS:
            raise UserError(
                "the process that forks reward workers was killed again and again; is there too little memory?"
            )
        self._launcher = ForkServerLauncher(self.setup, self._output.writer)

    def abandon(self) -> None:
        """In a fork of the pool's process: close our copies, without ending the workers."""
        self._launcher.abandon()
        self._output.abandon()
        for worker in self.workers.values():
            worker.close()

    def close(self) -> None:
        """Kill all."""
        self._launcher.close()
        for worker in self.workers.values():
            worker.close()
        self.workers.clear()
        self._output.close()
