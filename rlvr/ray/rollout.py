"""Rollout workers: a pool of processes that generate, each with a copy of the policy, beside those that learn.

They belong to no process group, so that any of them may die, hang or be replaced while training goes on. A request
(`rlvr.ray.splitting.Request`) says which weights are to answer it and names its random numbers, so the answer is the same bits whichever
worker gives it, whenever, and at whichever attempt; nothing of a run depends on the order in which workers answer.

Weights reach the workers through Ray's object store, in buckets, under a version number. (Left out: a broadcast by collectives of a
process group. A member that hangs would hold up the trainer and all others, and whoever takes a dead one's place needs the version that its
requests ask for, which the trainer may have left behind: the store still has it. Between machines Ray sends a bucket once to each,
and workers of the same machine read one copy.)
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from transformers import PreTrainedModel

from rlvr.boost.timeline import Span, record
from rlvr.config import Config
from rlvr.data.prompts import Prompt
from rlvr.ray import cluster as clusters
from rlvr.ray.cluster import START_S, ProcessDied, collect, compare_versions, import_ray
from rlvr.ray.groups import Size
from rlvr.ray.roles import RayPPORollout
from rlvr.ray.splitting import Piece, Request
from rlvr.rollout.engine import Engine, Rollout, Sampling, cut_into_parts

ATTEMPTS = 4
"""How often a request is asked, and how often in a row a worker is started, before the run gives up."""


@dataclass
class Part:
    """Some of the responses that were asked for.

    Attributes:
        rows: their places among all.
        answer: gives a reference to the piece, and the piece.
    """

    rows: list[int]
    answer: "Future[tuple[Any, Piece]]"


@dataclass(frozen=True)
class Weights:
    """Weights that the actor has published.

    Attributes:
        version: the number of episodes that they have learned from.
        buckets: references to them.
    """

    version: int
    buckets: Sequence[Any]


@dataclass(order=True)
class _Job:
    ahead: bool
    number: int
    part: int
    request: Request = field(compare=False)
    weights: Weights = field(compare=False)
    answer: "Future[tuple[Any, Piece]]" = field(default_factory=Future, compare=False)
    attempts: int = field(default=0, compare=False)


@dataclass(eq=False)
class _Worker:
    name: str
    handle: Any
    identity: Any
    deadline: float
    ready: bool = False
    version: int | None = None
    job: _Job | None = None
    asked_s: float = 0.0


class RolloutWorkers:
    """The pool. Requests go to whichever worker is free in the order in which they were asked; those made ahead after those that are
    waited for.

    A worker is replaced if it dies, if it does not answer in time (`--dist_timeout`; twice as long at each further attempt, so that what is
    slow is not lost), or if it answers with other weights than it was asked to. Its request is asked again.

    A thread of the driver owns the pool, so that workers get their next request while the driver waits for an optimizer step. What
    happens reaches it as functions in one queue; nothing else touches its state.

    Args:
        size: how many processes, and what each takes of the cluster.
    """

    def __init__(self, size: Size) -> None:
        self.size = size
        self._kind = import_ray().remote(num_cpus=1, num_gpus=size.gpu)(RayPPORollout)
        self._workers = [self._start(f"rollout worker {place + 1}") for place in range(size.world_size)]
        self._waiting: list[_Job] = []  # a heap
        self._numbers = count()
        self._failed_starts = 0
        self._events: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._broken: BaseException | None = None
        self.weights: Weights | None = None
        """Those that are asked for from now on."""

    def _start(self, name: str) -> _Worker:
        handle = self._kind.remote(1, 0, 0, None, None)
        return _Worker(name, handle, handle.identity.remote(), time.monotonic() + START_S)

    # Called by the driver.

    def check_versions(self) -> None:
        """Raise `UserError` if a process runs other code than this one."""
        for versions in self.collect([worker.handle.versions.remote() for worker in self._workers]):
            compare_versions(versions, "a rollout worker")

    def build(self, config: Config) -> list[Any]:
        """Have all processes load the model; returns references at once."""
        self.config, self.limit_s = config, config.parallel.dist_timeout
        self.weights = None
        return [self._build(worker) for worker in self._workers]

    def _build(self, worker: _Worker) -> Any:
        worker.version = None
        return worker.handle.build.remote(self.config, os.getcwd())

    def collect(self, refs: Sequence[Any]) -> list[Any]:
        """Wait for the answers of all; see `rlvr.ray.cluster.collect`."""
        return collect(refs, ["a rollout worker"] * len(refs))

    def begin(self, note: Callable[[str], None]) -> None:
        """All have loaded the model: from now on requests are answered.

        Args:
            note: is told of workers that are replaced.
        """
        self.note = note
        for worker in self._workers:
            worker.ready, worker.deadline = True, float("inf")
        if self._thread is None:
            self._thread = Thread(target=self._run, name="rollout workers", daemon=True)
            self._thread.start()

    def publish(self, weights: Weights) -> None:
        """What is asked from now on is to be answered with these."""
        self.weights = weights

    def take_number(self) -> int:
        """The next place in the order in which requests are answered."""
        return next(self._numbers)

    def ask(
        self,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        seed: tuple[int | str, ...],
        *,
        ahead: bool = False,
        begun: Sequence[Rollout] = (),
        weights: Weights | None = None,
        number: int | None = None,
    ) -> list[Part]:
        """Ask for one response to each prompt, in parts of at most `sampling.batch_size`; returns at once. May be called in any thread.

        Args:
            seed: names the random numbers, as `Engine.stream` takes it.
            ahead: nobody waits for them yet.
            begun: what there is of each response, if they go on; `sampling.max_new_tokens` counts what follows.
            weights: others than those that were published last.
            number: the place in the order, if it was taken before.
        """
        weights, number = weights or self.weights, self.take_number() if number is None else number
        assert weights is not None, "no weights were published"
        parts: list[Part] = []
        first = 0
        for rows in cut_into_parts(prompts, sampling.batch_size):
            some = [begun[row] for row in rows] if begun else ()
            request = Request([prompts[row] for row in rows], sampling, seed, first, some)
            job = _Job(ahead, number, len(parts), request, weights)
            self._events.put(partial(self._take_up, job))
            parts.append(Part(rows, job.answer))
            first += len(rows)
        return parts

    def close(self) -> None:
        """End all processes."""
        if self._thread is not None:
            self._events.put(None)
            self._thread.join()
            self._thread = None
        clusters.end([worker.handle for worker in self._workers])

    # Called by the pool's own thread.

    def _run(self) -> None:
        try:
            while (event := self._next_event()) is not None:
                event()
                self._replace_late()
                self._hand_out()
        except BaseException as error:  # nobody sees what a thread raises: those who wait for answers do
            self._give_up(error)
            while (event := self._events.get()) is not None:
                event()  # what is asked from now on fails at once

    def _next_event(self) -> Callable[[], None] | None:
        """Wait for what happens next; a deadline that passes is an event too."""
        until = min((worker.deadline for worker in self._workers), default=float("inf"))
        wait_s = max(0.0, until - time.monotonic())
        try:
            return self._events.get(timeout=min(wait_s, 3600.0))
        except Empty:
            return lambda: None

    def _take_up(self, job: _Job) -> None:
        if self._broken is not None:
            job.answer.set_exception(self._broken)
        else:
            heappush(self._waiting, job)

    def _give_up(self, error: BaseException) -> None:
        self._broken = error
        unanswered = [*self._waiting, *(worker.job for worker in self._workers if worker.job is not None)]
        self._waiting.clear()
        for job in unanswered:
            if not job.answer.done():
                job.answer.set_exception(error)

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.ready and worker.job is None and self._waiting:
                job = heappop(self._waiting)
                job.attempts += 1
                worker.job, worker.asked_s = job, time.time()
                worker.deadline = time.monotonic() + self.limit_s * 2 ** (job.attempts - 1)
                if worker.version != job.weights.version:
                    worker.handle.take_weights.remote(job.weights.version, job.weights.buckets)
                    worker.version = job.weights.version
                self._when_done(worker.handle.answer.remote(job.request), partial(self._answered, worker, job))

    def _when_done(self, ref: Any, then: Callable[[Any, "Future[Any]"], None]) -> None:
        """Have the thread call `then` with the reference and its future when the result is there."""
        ref.future().add_done_callback(lambda future: self._events.put(partial(then, ref, future)))

    def _answered(self, worker: _Worker, job: _Job, ref: Any, future: "Future[Piece]") -> None:
        if worker.job is not job:
            return  # from a worker that was replaced meanwhile: its request was asked again
        exceptions = import_ray().exceptions
        error = future.exception()
        if isinstance(error, exceptions.RayTaskError):
            worker.job, worker.deadline = None, float("inf")
            job.answer.set_exception(clusters.cause_of(error))
        elif isinstance(error, exceptions.RayError):
            self._replace(worker, f"died ({clusters.reason_of(error)})")
        elif error is not None:
            raise error
        elif any(_newest(rollout) not in (None, job.weights.version) for rollout in future.result().rollouts):
            self._replace(worker, f"answered with other weights than those of version {job.weights.version}")
        else:
            worker.job, worker.deadline = None, float("inf")
            record(Span(worker.name, f"generation, weights {job.weights.version}", worker.asked_s, time.time()))
            job.answer.set_result((ref, future.result()))

    def _replace_late(self) -> None:
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.deadline <= now]:
            clusters.kill_here(worker.identity)
            late = f"within {self.limit_s:g} s (--dist_timeout)" if worker.ready else f"its start within {START_S:g} s"
            self._replace(worker, f"did not answer {late}")

    def _replace(self, worker: _Worker, why: str) -> None:
        """End a worker, start another, and have its request asked again."""
        clusters.end([worker.handle])
        self._workers.remove(worker)
        job, worker.job = worker.job, None
        self._failed_starts = 0 if worker.ready else self._failed_starts + 1
        if max(self._failed_starts, job.attempts if job is not None else 0) >= ATTEMPTS:
            if job is not None:
                heappush(self._waiting, job)
            raise ProcessDied("a rollout worker", f"{ATTEMPTS} times in a row; the last one {why}")
        again = f", and its {len(job.request.prompts)} prompts are asked again" if job is not None else ""
        self.note(f"a rollout worker {why}; another takes its place{again}")
        if job is not None:
            heappush(self._waiting, job)
        new = self._start(worker.name)
        self._workers.append(new)
        self._when_done(self._build(new), partial(self._started, new))

    def _started(self, worker: _Worker, ref: Any, future: "Future[None]") -> None:
        if worker not in self._workers:
            return
        error = future.exception()
        exceptions = import_ray().exceptions
        if isinstance(error, exceptions.RayTaskError):
            raise clusters.cause_of(error)
        if error is not None:
            self._replace(worker, f"died at its start ({clusters.reason_of(error)})")
            return
        self._failed_starts = 0
        worker.ready, worker.deadline = True, float("inf")


def _newest(rollout: Rollout) -> int | None:
    """The version of the weights that sampled its last token; None without tokens."""
    return None if rollout.versions is None or not len(rollout.versions) else int(rollout.versions[-1])


class RolloutEngine(Engine):
    """The workers as an engine of the driver, for evaluations: they have the model, which is not looked at here.

    Args:
        workers: the pool, with the weights that were published last.
    """

    def __init__(self, workers: RolloutWorkers) -> None:
        self.workers = workers

    def stream(
        self,
        model: PreTrainedModel | None,
        prompts: Sequence[Prompt],
        sampling: Sampling,
        seed: Sequence[int | str],
        first: int = 0,
    ) -> Iterator[list[Rollout]]:
        """One response to each prompt, in order."""
        found: dict[int, Rollout] = {}
        for part in self.workers.ask(prompts, sampling, tuple(seed)):
            _, piece = part.answer.result()
            found |= dict(zip(part.rows, piece.rollouts, strict=True))
        yield [found[row] for row in range(len(prompts))]
