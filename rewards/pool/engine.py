"""The thread that runs a pool: it hands out chunks, sees who is slow, kills at the deadline, and hears the answers."""

import selectors
import threading
import time
from collections import deque
from collections.abc import Sequence

from rewards.errors import UserError
from rewards.outcome import Outcome, Status
from rewards.pool import wire
from rewards.pool.crew import NOT_NEEDED, READ_BYTES, Crew, Worker
from rewards.pool.inbox import Inbox
from rewards.pool.ledger import Ledger, Result
from rewards.pool.pace import Pace
from rewards.pool.starting import ORPHANED, START_LIMIT_S, Load
from rewards.pool.work import Chunk, Task
from rewards.pool.zygote import KILLED

MAX_ASLEEP, MAX_ASLEEP_FRESH, MAX_BURNING = 32, 4, 4  # slow workers in whose place others work, for each worker
COLD = 4  # the first calls of a new worker take longer
_LOOK_AT_SLOW_S = 0.01
_TIMED_OUT = "timed out"


class Engine:
    """One run of a pool. All but `inbox` and `stop` belongs to its thread."""

    def __init__(self, load: Load, ledger: Ledger) -> None:
        self.ledger, self.limits = ledger, ledger.limits
        self.paces = [Pace() for _ in ledger.functions]
        self.queue: deque[Task] = deque()
        self.idle: list[Worker] = []
        self.fast: set[Worker] = set()  # at work
        self.slow: set[Worker] = set()  # long on one call
        self.burning = 0  # of the slow: those that use a processor
        self.looked_s = 0.0
        self.inbox = Inbox()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.inbox.bell, selectors.EVENT_READ)
        self.news_fd: int | None = None
        self.crew = Crew(load)
        self.thread = threading.Thread(target=self._run, name="reward-pool", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """From any thread: end the pool's and all workers; whoever waits for scores gets a RuntimeError."""
        self.inbox.close()
        if threading.current_thread() is not self.thread:
            self.thread.join()

    # The thread.

    def _run(self) -> None:
        try:
            try:
                self.crew.open()
                while not self.inbox.closing:
                    self._turn()
            finally:
                self.crew.close()
        # Whatever it is, those who wait for scores must hear of it: they raise it.
        except BaseException as error:
            self.inbox.broken = error
        finally:
            self._shut(self.inbox.broken or RuntimeError("the reward pool was closed while scores were on their way"))

    def _turn(self) -> None:
        if self.news_fd is None and (fd := self.crew.fileno()) is not None:
            self.selector.register(fd, selectors.EVENT_READ)
            self.news_fd = fd
        for key, events in self.selector.select(self._tick()):
            if key.fileobj is self.inbox.bell:
                self.inbox.silence()
            elif isinstance(key.data, Worker):
                if events & selectors.EVENT_WRITE:
                    self._send(key.data)
                if events & selectors.EVENT_READ:
                    self._hear(key.data)
        for worker, how in self.crew.deaths():
            self._bury(worker, how)
        if self.crew.must_move:
            if self.news_fd is not None:
                self.selector.unregister(self.news_fd)
                self.news_fd = None
            self.crew.move()
        self._watch(time.monotonic())
        for pending in self.inbox.take():
            self.queue.extend(self.ledger.open(pending))
        if self.crew.ready:
            self._hand_out()
        self.inbox.answered(self.ledger.answered)
        self.ledger.answered = 0

    def _tick(self) -> float | None:
        """How long to sleep: until something comes if nobody works, else half the shortest grace."""
        if not self.crew.ready:
            return 0.5
        if self.fast:
            return min(0.05, 0.5 * min(self.paces[w.chunk.function].grace_s for w in self.fast if w.chunk))
        return _LOOK_AT_SLOW_S if self.slow or (self.queue and not self.idle) else None

    # Handing out.

    def _hand_out(self) -> None:
        while self.queue and self._places() > 0:
            task = self.queue.popleft()
            chunk = None if task.pending.done else self._cut(task)
            if chunk is None:
                continue
            worker = self.idle.pop() if self.idle else self._hire()
            if worker is None:
                self.queue.appendleft(Task(chunk.pending, chunk.function, chunk.indices))
                return
            try:
                worker.give(chunk)
            except UserError as error:
                self.idle.append(worker)
                self.ledger.fail(chunk.pending, error)
                continue
            self.fast.add(worker)
            self._send(worker)
        self._spare()

    def _spare(self) -> None:
        """Where calls hang, one worker stands by for the next that does; and not too many do."""
        if self.queue and self.slow and not self.idle and self.crew.forks and (worker := self._hire()):
            self.idle.append(worker)
        while len(self.idle) > self.limits.workers:
            self.crew.kill(self.idle.pop(0), NOT_NEEDED)

    def _places(self) -> int:
        """How many more may work now: slow workers make room for others, within bounds."""
        most = self.limits.workers * (MAX_ASLEEP if self.crew.forks else MAX_ASLEEP_FRESH)
        asleep = len(self.slow) - self.burning
        extras = min(most, asleep + min(self.burning, MAX_BURNING * self.limits.workers))
        return self.limits.workers + extras - len(self.slow) - len(self.fast)

    def _hire(self) -> Worker | None:
        try:
            worker = self.crew.hire()
        except OSError as error:  # no descriptors or memory are left: wait for some, if there is hope
            if self.crew.workers:
                return None
            raise UserError(f"can't start reward workers: {error}") from error
        self.selector.register(worker.sock, selectors.EVENT_READ, worker)
        return worker

    def _cut(self, task: Task) -> Chunk | None:
        """The next chunk of a task, its rest back to the queue; None if the cache has all of it."""
        pending, f, now = task.pending, task.function, time.monotonic()
        if self.ledger.functions[f].batched:
            return Chunk(pending, f, task.indices, True, now)
        size = self.paces[f].chunk(self.inbox.queued - self.ledger.answered, self.limits.workers)
        if size < len(task.indices):
            self.queue.appendleft(Task(pending, f, task.indices[size:]))
        indices, keys = self.ledger.keys(pending, f, task.indices[:size])
        return Chunk(pending, f, indices, False, now, keys) if indices else None

    def _send(self, worker: Worker) -> None:
        was_full = worker.full
        worker.flush()
        if worker.full != was_full:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.full else 0)
            self.selector.modify(worker.sock, events, worker)

    # Watching.

    def _watch(self, now: float) -> None:
        for worker in list(self.fast):
            assert worker.chunk is not None
            grace = self.paces[worker.chunk.function].grace_s * (COLD if worker.cold else 1)
            if worker.on_call_s(now) > min(grace, self._limit_s(worker.chunk)):
                self._step_aside(worker, worker.chunk)
            elif worker.call < 0 and now - max(worker.chunk.sent_s, worker.started_s) > START_LIMIT_S:
                self.crew.kill(worker, f"it did not start within {START_LIMIT_S:.0f} s")
        if now - self.looked_s < _LOOK_AT_SLOW_S:
            return
        self.looked_s = now
        for worker in self.slow:
            worker.look_at_cpu(now)
            self._judge(worker, now)
        self.burning = sum(worker.burns for worker in self.slow)

    def _limit_s(self, chunk: Chunk) -> float:
        return self.limits.timeout_s * (len(chunk.indices) if chunk.batched else 1)

    def _judge(self, worker: Worker, now: float) -> None:
        assert worker.chunk is not None
        limit = self._limit_s(worker.chunk)
        # On a busy machine a call is not to blame for the time that it did not get, up to as much again.
        if not worker.doom and worker.on_call_s(now) > limit + min(worker.waited_s, limit):
            self.crew.kill(worker, f"{_TIMED_OUT} after {worker.on_call_s(now):.2f} s")
            self.paces[worker.chunk.function].judge(hung=True)

    def _step_aside(self, worker: Worker, chunk: Chunk) -> None:
        """It is long on one call: the others of its chunk go back to the queue."""
        self.fast.remove(worker)
        self.slow.add(worker)
        self.burning += 1
        worker.step_aside()
        end = worker.call + 1  # it may go on while we look: what it does twice is taken once
        rest = chunk.part(end, chunk.end)
        if rest is not None:
            chunk.end = end
            self.queue.appendleft(rest)

    # Answers.

    def _hear(self, worker: Worker) -> None:
        data = worker.read(READ_BYTES)
        if data == b"":  # it is ending, or a plugin closed what is not its own: then what it does will tell
            self.selector.unregister(worker.sock)
            if worker.chunk is None:
                self.crew.kill(worker, NOT_NEEDED)
        try:
            for payload in worker.frames.feed(data or b""):
                self._answer(worker, payload)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            self.crew.kill(worker, f"it sent rubbish: {error}")

    def _answer(self, worker: Worker, payload: bytes) -> None:
        head, _, lines = payload.partition(b"\n")
        said = wire.message(head)
        worker.received += lines
        worker.finished = bool(said.get("done"))
        if not worker.finished or worker.chunk is None or worker.doom:
            return
        chunk, ends = worker.chunk, bool(said.get("ends"))
        results = wire.decode(worker.received.rstrip(b"\n"))
        if len(results) < chunk.end and not ends and not any("mistake" in result for result in results):
            raise ValueError("fewer answers than calls")
        modules = wire.module_names(said.get("modules"))
        if worker in self.slow:
            self.paces[chunk.function].judge(hung=False)
        elif results:
            took_s = min(max(float(said["took_s"]), 0.0), time.monotonic() - chunk.sent_s)
            self.paces[chunk.function].learn(took_s, len(results))
        self.ledger.settle(chunk, results)
        self._free(worker)
        rest = chunk.part(len(results), chunk.end) if ends else None
        if rest is not None:
            self.queue.appendleft(rest)
        if modules:
            self.crew.preload(modules)
        if ends:
            self.crew.kill(worker, NOT_NEEDED)
        else:
            self.idle.append(worker)

    def _free(self, worker: Worker) -> None:
        worker.chunk, worker.received = None, b""
        self.fast.discard(worker)
        if worker in self.slow:
            self.slow.remove(worker)
            self.burning -= worker.burns

    def _bury(self, worker: Worker, how: str) -> None:
        """A worker has died: keep what it had finished, give what it was on its outcome, and the rest to others."""
        try:
            while data := worker.read(READ_BYTES):
                for payload in worker.frames.feed(data):
                    self._answer(worker, payload)
        except (ValueError, TypeError, AttributeError, KeyError):  # rubbish at the end of its life
            pass
        if worker.chunk is not None:
            self._inherit(worker, worker.chunk, how)
        if worker in self.idle:
            self.idle.remove(worker)
        self._free(worker)
        if worker.sock.fileno() in self.selector.get_map():
            self.selector.unregister(worker.sock)
        worker.close()

    def _inherit(self, worker: Worker, chunk: Chunk, how: str) -> None:
        lines = worker.received if worker.finished else worker.received + worker.progress.lines()
        try:
            results: Sequence[Result] = wire.decode(lines.rstrip(b"\n"))
            self.ledger.settle(chunk, results)
        except (ValueError, TypeError, AttributeError, KeyError):  # rubbish: as good as nothing
            results = []
        done, on = len(results), worker.call
        again = [chunk.part(done, chunk.end)]
        # Killed from outside (by whoever needs memory, say), and not by us: the call is done again, once.
        repeats = not worker.doom and how in (KILLED, ORPHANED) and done <= on < chunk.end and chunk.may_repeat(on)
        if not repeats and done <= on < chunk.end:  # it was on a call that it did not finish
            status: Status = "timed_out" if worker.doom.startswith(_TIMED_OUT) else "error"
            name, elapsed = self.ledger.functions[chunk.function].name, worker.on_call_s(time.monotonic())
            self.ledger.failed(chunk, on, Outcome(status, None, name, elapsed, worker.doom or how))
            again = [chunk.part(on + 1, chunk.end), chunk.part(done, on)]
        self.queue.extendleft(task for task in again if task is not None)

    def abandon(self) -> None:
        """In a fork of the process that made it: let go of everything, and leave the workers to that process."""
        self.selector.close()
        self.inbox.bell.close()
        self.crew.abandon()

    def _shut(self, error: BaseException) -> None:
        self.inbox.end()
        for pending in self.inbox.take() + list(self.ledger.unfinished.values()):
            pending.fail(error)
        self.selector.close()
