"""The thread that runs a pool: hands out chunks, notices slow calls, kills at the deadline, and collects the scores."""

import selectors
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rewards.errors import UserError
from rewards.outcome import Outcome, Status
from rewards.pool import protocol
from rewards.pool.launch import KILLED, ORPHANED, WorkerSetup
from rewards.pool.limits import START_LIMIT_S
from rewards.pool.submissions import Chunk, Result, Results, SubmissionQueue, Task
from rewards.pool.workers import NOT_NEEDED, READ_BYTES, Worker, WorkerGroup

MAX_SLEEPING, MAX_SLEEPING_NO_FORK, MAX_BUSY_SLOW = 32, 4, 4  # slow workers in whose place others work, for each worker
COLD_FACTOR = 4  # the first calls of a new worker take longer
_CHECK_SLOW_S = 0.01
_INVALID = "it sent invalid data"
_TIMED_OUT = "timed out"


class Scheduler:
    """One run of a pool. All but `submissions` and `stop` belongs to its thread."""

    def __init__(self, setup: WorkerSetup, results: Results) -> None:
        self.results, self.limits = results, results.limits
        self.call_times = [CallTimes() for _ in results.functions]
        self.queue: deque[Task] = deque()
        self.idle: list[Worker] = []
        self.fast: set[Worker] = set()  # at work
        self.slow: set[Worker] = set()  # on a call that is slow
        self.busy_slow = 0  # of the slow: those that use a processor
        self.measured_s = 0.0
        self.submissions = SubmissionQueue()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.submissions.wakeup, selectors.EVENT_READ)
        self.events_fd: int | None = None
        self.group = WorkerGroup(setup)
        self.thread = threading.Thread(target=self._run, name="reward-pool", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """From any thread: end the pool's and all workers; threads that wait for scores get a RuntimeError."""
        self.submissions.close()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    # The thread.

    def _run(self) -> None:
        try:
            try:
                self.group.open()
                while not self.submissions.closing:
                    self._step()
            finally:
                self.group.close()
        # Any error ends the pool: it is raised in the threads that wait for scores.
        except BaseException as error:
            self.submissions.broken = error
        finally:
            self._fail_unfinished(
                self.submissions.broken or RuntimeError("the reward pool was closed while scores were on their way")
            )

    def _step(self) -> None:
        if self.events_fd is None and (fd := self.group.fileno()) is not None:
            self.selector.register(fd, selectors.EVENT_READ)
            self.events_fd = fd
        for key, events in self.selector.select(self._timeout_s()):
            if key.fileobj is self.submissions.wakeup:
                self.submissions.clear_wakeup()
            elif isinstance(key.data, Worker):
                if events & selectors.EVENT_WRITE:
                    self._send(key.data)
                if events & selectors.EVENT_READ:
                    self._receive(key.data)
        for worker, how in self.group.deaths():
            self._on_death(worker, how)
        if self.group.needs_new_launcher:
            if self.events_fd is not None:
                self.selector.unregister(self.events_fd)
                self.events_fd = None
            self.group.replace_launcher()
        self._check_times(time.monotonic())
        for pending in self.submissions.take():
            self.queue.extend(self.results.open(pending))
        if self.group.ready:
            self._assign_chunks()
        self.submissions.answered(self.results.answered)
        self.results.answered = 0

    def _timeout_s(self) -> float | None:
        """Seconds to sleep: until there is news if no worker is busy, else half the shortest time after which a call is slow."""
        if not self.group.ready:
            return 0.5
        if self.fast:
            return min(0.05, 0.5 * min(self.call_times[w.chunk.function].slow_after_s for w in self.fast if w.chunk))
        if self.slow or (self.queue and not self.idle):
            return _CHECK_SLOW_S
        return 0.5 if self.group.waits else None

    # Assigning work.

    def _assign_chunks(self) -> None:
        while self.queue and self._free_slots() > 0:
            task = self.queue.popleft()
            chunk = None if task.pending.done else self._next_chunk(task)
            if chunk is None:
                continue
            worker = self.idle.pop() if self.idle else self._start_worker()
            if worker is None:
                self.queue.appendleft(Task(chunk.pending, chunk.function, chunk.indices))
                return
            try:
                worker.assign(chunk)
            except UserError as error:
                self.idle.append(worker)
                self.results.fail(chunk.pending, error)
                continue
            self.fast.add(worker)
            self._send(worker)
        self._adjust_idle()

    def _adjust_idle(self) -> None:
        """While calls hang, keep one idle worker for the next that does; end idle workers beyond the limit."""
        if self.queue and self.slow and not self.idle and self.group.forks and (worker := self._start_worker()):
            self.idle.append(worker)
        while len(self.idle) > self.limits.workers:
            self.group.kill(self.idle.pop(0), NOT_NEEDED)

    def _free_slots(self) -> int:
        """The number of workers that may start work now: slow workers make room for others, within limits.

        While calls hang there is one more at work: the time until one is known to hang is not lost then.
        """
        most = self.limits.workers * (MAX_SLEEPING if self.group.forks else MAX_SLEEPING_NO_FORK)
        sleeping = len(self.slow) - self.busy_slow
        extras = min(most, sleeping + min(self.busy_slow, MAX_BUSY_SLOW * self.limits.workers))
        more = 1 if self.slow and self.group.forks else 0
        return self.limits.workers + more + extras - len(self.slow) - len(self.fast)

    def _start_worker(self) -> Worker | None:
        try:
            worker = self.group.start()
        except OSError as error:  # no descriptors or memory are left: wait for some, if there is hope
            if self.group.workers:
                return None
            raise UserError(f"can't start reward workers: {error}") from error
        self.selector.register(worker.sock, selectors.EVENT_READ, worker)
        return worker

    def _next_chunk(self, task: Task) -> Chunk | None:
        """The next chunk of a task, its rest back to the queue; None if the cache has all of it."""
        pending, f, now = task.pending, task.function, time.monotonic()
        if self.results.functions[f].batched:
            return Chunk(pending, f, task.indices, True, now)
        size = self.call_times[f].chunk_size(self.submissions.queued - self.results.answered, self.limits.workers)
        if size < len(task.indices):
            self.queue.appendleft(Task(pending, f, task.indices[size:]))
        indices, keys = self.results.keys(pending, f, task.indices[:size])
        return Chunk(pending, f, indices, False, now, keys) if indices else None

    def _send(self, worker: Worker) -> None:
        was_full = worker.full
        worker.flush()
        if worker.full != was_full:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.full else 0)
            self.selector.modify(worker.sock, events, worker)

    # Slow calls and deadlines.

    def _check_times(self, now: float) -> None:
        for worker in list(self.fast):
            assert worker.chunk is not None
            slow_after_s = self.call_times[worker.chunk.function].slow_after_s * (COLD_FACTOR if worker.cold else 1)
            if worker.on_call_s(now) > min(slow_after_s, self.limits.deadline_s(worker.chunk.samples_per_call)):
                self._set_slow(worker, worker.chunk)
            elif worker.call < 0 and now - max(worker.chunk.sent_s, worker.started_s) > START_LIMIT_S:
                self.group.kill(worker, f"it did not start within {START_LIMIT_S:.0f} s")
        if now - self.measured_s < _CHECK_SLOW_S:
            return
        self.measured_s = now
        for worker in self.slow:
            worker.measure_cpu(now)
            self._check_deadline(worker, now)
        self.busy_slow = sum(worker.uses_cpu for worker in self.slow)

    def _check_deadline(self, worker: Worker, now: float) -> None:
        if self._is_overdue(worker, now):
            worker.measure_cpu(now, at_once=True)  # it may have waited for a processor since
        if self._is_overdue(worker, now):
            assert worker.chunk is not None
            self.group.kill(worker, f"{_TIMED_OUT} after {worker.on_call_s(now):.2f} s")
            self.call_times[worker.chunk.function].record_slow(hung=True)

    def _is_overdue(self, worker: Worker, now: float) -> bool:
        assert worker.chunk is not None
        elapsed_s = worker.on_call_s(now)
        return not worker.kill_reason and self.limits.is_overdue(
            worker.chunk.samples_per_call, elapsed_s, worker.waited_s
        )

    def _set_slow(self, worker: Worker, chunk: Chunk) -> None:
        """Its call is slow: the other calls of its chunk go back to the queue."""
        self.fast.remove(worker)
        self.slow.add(worker)
        self.busy_slow += 1
        worker.stop_after_call()
        end = worker.call + 1  # it may begin the next call meanwhile: of two scores, the first counts
        rest = chunk.part(end, chunk.end)
        if rest is not None:
            chunk.end = end
            self.queue.appendleft(rest)

    # Results and deaths.

    def _receive(self, worker: Worker) -> None:
        data = worker.read(READ_BYTES)
        if data == b"":  # it is ending, or a plugin closed what is not its own: then what it does will tell
            self.selector.unregister(worker.sock)
            if worker.chunk is None:
                self.group.kill(worker, NOT_NEEDED)
        try:
            for payload in worker.frames.feed(data or b""):
                self._finish_chunk(worker, payload)
        except protocol.INVALID as error:
            self.group.kill(worker, f"{_INVALID}: {error}")

    def _finish_chunk(self, worker: Worker, payload: bytes) -> None:
        head, _, lines = payload.partition(b"\n")
        said = protocol.message(head)
        worker.received += lines
        if len(worker.received) > protocol.MAX_FRAME_BYTES:
            raise ValueError(f"{len(worker.received)} bytes for one chunk")
        worker.finished = bool(said.get("done"))
        if not worker.finished or worker.chunk is None or worker.kill_reason:
            return
        chunk, ends = worker.chunk, bool(said.get("ends"))
        results = protocol.decode(worker.received.rstrip(b"\n"))
        if len(results) < chunk.end and not ends and not any("user_error" in result for result in results):
            raise ValueError("fewer answers than calls")
        modules = protocol.module_names(said.get("modules"))
        if worker in self.slow:
            self.call_times[chunk.function].record_slow(hung=False)
        elif results:
            took_s = min(max(float(said["took_s"]), 0.0), time.monotonic() - chunk.sent_s)
            self.call_times[chunk.function].record(took_s, len(results))
        self.results.record(chunk, results)
        self._free(worker)
        rest = chunk.part(len(results), chunk.end) if ends else None
        if rest is not None:
            self.queue.appendleft(rest)
        if modules:
            self.group.preload(modules)
        if ends:
            self.group.kill(worker, NOT_NEEDED)
        else:
            self.idle.append(worker)

    def _free(self, worker: Worker) -> None:
        worker.chunk, worker.received = None, b""
        self.fast.discard(worker)
        if worker in self.slow:
            self.slow.remove(worker)
            self.busy_slow -= worker.uses_cpu

    def _on_death(self, worker: Worker, how: str) -> None:
        """A worker died: keep its finished calls, record the outcome of the unfinished one, and queue the rest again."""
        try:
            while data := worker.read(READ_BYTES):
                for payload in worker.frames.feed(data):
                    self._finish_chunk(worker, payload)
        except protocol.INVALID:  # invalid data from a dying worker
            pass
        if worker.chunk is not None:
            self._reassign(worker, worker.chunk, how)
        if worker in self.idle:
            self.idle.remove(worker)
        self._free(worker)
        if worker.sock.fileno() in self.selector.get_map():
            self.selector.unregister(worker.sock)
        worker.close()

    def _reassign(self, worker: Worker, chunk: Chunk, how: str) -> None:
        lines = worker.received if worker.finished else worker.received + worker.progress.lines()
        try:
            results: Sequence[Result] = protocol.decode(lines.rstrip(b"\n"))
            self.results.record(chunk, results)
        except protocol.INVALID:  # invalid data counts as no results
            results = []
        done = len(results)
        on, known = self._call_at_death(worker, done, chunk.end)
        again = [chunk.part(done, chunk.end)]
        # Killed from outside (for its memory, say) and not by us: the call is done again, once. So it is where an earlier call may be
        # to blame: then each by itself, and the next time it is known.
        killed = not worker.kill_reason and how in (KILLED, ORPHANED)
        repeats = (killed or not known) and done <= on < chunk.end and chunk.may_repeat(on)
        if repeats and not known:
            again = [chunk.part(call, call + 1) for call in range(done, chunk.end)]
        if not repeats and done <= on < chunk.end:  # it was on a call that it did not finish
            status: Status = "timed_out" if worker.kill_reason.startswith(_TIMED_OUT) else "error"
            name, elapsed = self.results.functions[chunk.function].name, worker.on_call_s(time.monotonic())
            self.results.failed(chunk, on, Outcome(status, None, name, elapsed, worker.kill_reason or how))
            again = [chunk.part(on + 1, chunk.end), chunk.part(done, on)]
        self.queue.extendleft(task for task in again if task is not None)

    @staticmethod
    def _call_at_death(worker: Worker, done: int, end: int) -> tuple[int, bool]:
        """The call that a worker died in, `done` of which it had finished (one less, if it died between two); and whether that is
        known. What a call sends to us or writes over the worker's place may take us in only when the next call has begun."""
        on = worker.progress.index
        sound = done - 1 <= on < end or on == protocol.BEFORE_THE_FIRST
        if worker.kill_reason.startswith(_INVALID) or not sound:
            return max(on, done) if sound else done, False
        return on, True

    def abandon(self) -> None:
        """In a fork of the process that made it: close our copies, and leave the workers to that process."""
        self.selector.close()
        self.submissions.wakeup.close()
        self.group.abandon()

    def _fail_unfinished(self, error: BaseException) -> None:
        self.submissions.end()
        for pending in self.submissions.take() + list(self.results.unfinished.values()):
            pending.fail(error)
        self.selector.close()


# Running times.

CHUNK_S = 0.05  # of work: much more than handing it out takes, much less than a training step
MAX_CHUNK = 2000
FIRST_CHUNK = 8
MIN_SLOW_AFTER_S, FIRST_SLOW_AFTER_S = 0.001, 0.2
MIN_MEANS, MAX_MEANS = 3.0, 50.0


@dataclass
class CallTimes:
    """Running time of one function's calls: how many to hand out at once, and when a call is slow.

    Attributes:
        mean_s: mean time of a call; None before the first.
        means: a call is slow after so many times the mean.
    """

    mean_s: float | None = None
    means: float = 8.0

    def record(self, seconds: float, calls: int) -> None:
        """Update the mean with calls that took `seconds` together."""
        new = 1.0 if self.mean_s is None else calls / (calls + 50)
        self.mean_s = (1 - new) * (self.mean_s or 0.0) + new * seconds / calls

    def record_slow(self, hung: bool) -> None:
        """A slow call hung, or ended by itself. Noticing hangs early saves time; calling others slow costs some."""
        self.means = max(MIN_MEANS, 0.9 * self.means) if hung else min(MAX_MEANS, 1.2 * self.means)

    @property
    def slow_after_s(self) -> float:
        """A call that takes longer is slow, and others need not wait for it."""
        return FIRST_SLOW_AFTER_S if self.mean_s is None else max(MIN_SLOW_AFTER_S, self.means * self.mean_s)

    def chunk_size(self, left: int, workers: int) -> int:
        """Calls to hand out at once: about `CHUNK_S` of work, and less when the work runs out."""
        wanted = FIRST_CHUNK if self.mean_s is None else int(CHUNK_S / max(self.mean_s, 1e-6))
        return max(1, min(wanted, MAX_CHUNK, -(-left // (2 * workers))))
