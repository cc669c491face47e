"""Submitted samples: their way into the pool, the work that is made of them, and their scores on the way back.

`Pending` is one submission, `SubmissionQueue` hands it to the scheduler's thread, `Task` and `Chunk` are parts of its work,
and `Results` puts its scores together and counts failures.
"""

import socket
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from rewards.errors import UserError
from rewards.outcome import Outcome, Score
from rewards.pool.cache import Cache
from rewards.pool.limits import Limits
from rewards.registry import RewardFunction
from rewards.sample import Sample


@dataclass
class FailureCount:
    """Counts of one function's calls and failures.

    Attributes:
        kind: what it is, in words.
        calls: samples that it was called for.
        timed_out, error: those that it had no score for.
        last: the latest failure in words.
    """

    kind: str = "reward function"
    calls: int = 0
    timed_out: int = 0
    error: int = 0
    last: str = ""

    @property
    def failed(self) -> int:
        return self.timed_out + self.error

    def add(self, outcome: Outcome, samples: int) -> None:
        """Count a failure of a call for so many samples."""
        self.timed_out += samples * (outcome.status == "timed_out")
        self.error += samples * (outcome.status == "error")
        self.last = outcome.message


class Pending:
    """Scores on their way; made by `RewardPool.submit`."""

    def __init__(self, samples: Sequence[Sample], functions: int) -> None:
        self.samples = list(samples)
        self.scores: list[list[Score | None]] = [[None] * len(self.samples) for _ in range(functions)]
        self.left = functions * len(self.samples)
        self.error: BaseException | None = None
        self.repeated: set[tuple[int, int]] = set()  # (function, sample): calls that are done again
        self._done = threading.Event()
        if not self.left:
            self._done.set()

    @property
    def done(self) -> bool:
        """True once `result` returns or raises at once."""
        return self._done.is_set()

    def result(self, timeout_s: float | None = None) -> list[list[Score]]:
        """The scores, [function][sample], in the order of the functions and of the samples.

        Raises:
            UserError: a function returned no valid score, asks for an unknown argument, fails too often, or no worker
                could start.
            TimeoutError: not done after `timeout_s`; they go on.
        """
        if not self._done.wait(timeout_s):
            raise TimeoutError(f"{self.left} scores are not there after {timeout_s} s")
        if self.error is not None:
            # One instance for each call: raised in several threads, one would grow the traceback of the other.
            raise type(self.error)(*self.error.args) from self.error
        return [[score for score in column if score is not None] for column in self.scores]

    def put(self, function: int, index: int, score: Score) -> None:
        """A score has come."""
        if self.scores[function][index] is None:
            self.scores[function][index] = score
            self.left -= 1
            if not self.left:
                self._done.set()

    def fail(self, error: BaseException) -> None:
        """No scores will come."""
        if not self._done.is_set():
            self.error = error
            self._done.set()


@dataclass
class Task:
    """Samples of one submission that one function has still to score."""

    pending: Pending
    function: int
    indices: Sequence[int]


@dataclass
class Chunk:
    """Work of one worker: `indices` of a task's samples.

    Attributes:
        calls: the number of calls that the worker makes of it: one for each sample, or a single one for all.
        sent_s: when it was sent, by the monotonic clock.
        keys: under which the cache keeps the scores; None where it does not.
        end: the calls that are still this worker's; those from here on were given to others.
    """

    pending: Pending
    function: int
    indices: Sequence[int]
    batched: bool
    sent_s: float
    keys: Sequence[Hashable] = ()
    calls: int = field(init=False)
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.calls = 1 if self.batched else len(self.indices)

    @property
    def samples_per_call(self) -> int:
        return len(self.indices) if self.batched else 1

    def samples_of(self, call: int) -> Sequence[int]:
        """Which samples a call is for."""
        return self.indices if self.batched else self.indices[call : call + 1]

    def may_repeat(self, call: int) -> bool:
        """True where a call may be done again; once only, so that a call which kills its worker comes to an end."""
        key = (self.function, self.samples_of(call)[0])
        known = key in self.pending.repeated
        self.pending.repeated.add(key)
        return not known

    def part(self, first: int, end: int) -> Task | None:
        """Its calls from `first` to `end`, as work to be done again; None if there are none."""
        if self.batched:
            return Task(self.pending, self.function, self.indices) if first == 0 < end else None
        indices = self.indices[first:end]
        return Task(self.pending, self.function, indices) if indices else None


MAX_QUEUED = 50_000  # calls; from there on `put` waits


class SubmissionQueue:
    """Submissions on their way to the scheduler. `put` and `close` are called from any thread, the rest by the pool's.

    Attributes:
        queued: calls that were submitted and are not yet answered.
        closing: no more submissions are accepted.
        broken: the exception that ended the scheduler's thread, if one did.
        wakeup: a socket that is readable when there is news.
    """

    def __init__(self) -> None:
        self.queued = 0
        self.closing = False
        self.broken: BaseException | None = None
        self.wakeup, self._wakeup_sender = socket.socketpair()
        self.wakeup.setblocking(False)
        self._wakeup_sender.setblocking(False)
        self._room = threading.Condition()
        self._arrived: list[Pending] = []

    def put(self, pending: Pending) -> None:
        """Submit it; waits while too much is queued.

        Raises:
            UserError: workers can't start.
            RuntimeError: the pool is closed.
        """
        with self._room:
            while self.queued > MAX_QUEUED and not self.closing:
                self._room.wait()
            if self.broken is not None:
                raise type(self.broken)(*self.broken.args) from self.broken
            if self.closing:
                raise RuntimeError("the reward pool is closed")
            self.queued += pending.left
            self._arrived.append(pending)
            self._wake()

    def close(self) -> None:
        """Accept no more submissions."""
        with self._room:
            self.closing = True
            self._room.notify_all()
            self._wake()

    def _wake(self) -> None:
        try:
            self._wakeup_sender.send(b"x")
        except OSError:  # it is full already, or the scheduler has ended
            pass

    def clear_wakeup(self) -> None:
        """Empty the wakeup socket."""
        self.wakeup.recv(4096)

    def take(self) -> list[Pending]:
        """The submissions that have arrived."""
        if not self._arrived:
            return []
        with self._room:
            arrived, self._arrived = self._arrived, []
        return arrived

    def answered(self, calls: int) -> None:
        """So many calls are no longer queued."""
        if calls:
            with self._room:
                self.queued -= calls
                self._room.notify_all()

    def end(self) -> None:
        """Close for good: the scheduler has ended."""
        self.close()
        with self._room:
            self.wakeup.close()
            self._wakeup_sender.close()


Result = list[Score] | dict[str, str]
"""The result of one call: a score for each of its samples, or {"error": text} or {"user_error": text}."""


class Results:
    """Puts scores together: results to the submissions they belong to, failures counted, the cache filled.

    Used by the scheduler's thread alone.

    Attributes:
        unfinished: submissions that lack scores.
        answered: calls answered, or given up with their submission, since it was last set to 0.
    """

    def __init__(
        self, functions: list[RewardFunction], limits: Limits, cache: Cache, failures: dict[str, FailureCount]
    ) -> None:
        self.functions, self.limits, self.cache, self.failures = functions, limits, cache, failures
        self.unfinished: dict[int, Pending] = {}
        self.answered = 0

    def open(self, pending: Pending) -> list[Task]:
        """Begin a submission; returns its work, one task for each function."""
        if not pending.left:
            return []
        self.unfinished[id(pending)] = pending
        return [Task(pending, f, range(len(pending.samples))) for f in range(len(self.functions))]

    def keys(self, pending: Pending, function: int, indices: Sequence[int]) -> tuple[list[int], list[Hashable]]:
        """Take scores from the cache; returns the samples that remain, and the cache key of each (None: not cached)."""
        left: list[int] = []
        keys: list[Hashable] = []
        for index in indices:
            key = self.cache.key(function, pending.samples[index])
            score = None if key is None else self.cache.get(key)
            if score is None:
                left.append(index)
                keys.append(key)
            else:
                self.failures[self.functions[function].name].calls += 1
                self.put(pending, function, index, score)
        return left, keys

    def record(self, chunk: Chunk, results: Sequence[Result]) -> None:
        """Results of the chunk's first calls.

        Raises:
            ValueError: a call has not as many scores as samples.
        """
        for call, result in enumerate(results[: chunk.end]):
            if not isinstance(result, dict):
                self._scored(chunk, call, result)
            elif "user_error" in result:
                self.fail(chunk.pending, UserError(result["user_error"]))
            else:
                name = self.functions[chunk.function].name
                self.failed(chunk, call, Outcome("error", stage=name, message=result["error"]))

    def _scored(self, chunk: Chunk, call: int, scores: list[Score]) -> None:
        samples = chunk.samples_of(call)
        if len(scores) != len(samples):
            raise ValueError(f"{len(scores)} scores for {len(samples)} samples")
        self.failures[self.functions[chunk.function].name].calls += len(samples)
        if not chunk.batched and (key := chunk.keys[call]) is not None:
            self.cache.put(key, scores[0])
        for index, score in zip(samples, scores, strict=True):
            self.put(chunk.pending, chunk.function, index, score)

    def failed(self, chunk: Chunk, call: int, outcome: Outcome) -> None:
        """A call has no score: its samples get the outcome."""
        samples = chunk.samples_of(call)
        count = self.failures[self.functions[chunk.function].name]
        count.calls += len(samples)
        count.add(outcome, len(samples))
        for index in samples:
            self.put(chunk.pending, chunk.function, index, Score(None, outcome))
        if error := self.too_many_failures():
            for pending in list(self.unfinished.values()):
                self.fail(pending, error)

    def put(self, pending: Pending, function: int, index: int, score: Score) -> None:
        """A score has come; the second of two for one sample is dropped."""
        if pending.done or pending.scores[function][index] is not None:
            return
        if pending.left == 1 and (error := self.too_many_failures()):
            self.fail(pending, error)
            return
        self.answered += 1
        if pending.left == 1:
            del self.unfinished[id(pending)]
        pending.put(function, index, score)

    def fail(self, pending: Pending, error: BaseException) -> None:
        """No more scores for this one."""
        if self.unfinished.pop(id(pending), None) is not None:
            self.answered += pending.left
            pending.fail(error)

    def too_many_failures(self) -> UserError | None:
        return too_many_failures(self.failures, self.limits)


def too_many_failures(failures: Mapping[str, FailureCount], limits: Limits) -> UserError | None:
    """The error for a function that fails so often that its scores mean nothing; None if there is none."""
    for name, count in failures.items():
        if count.failed >= limits.min_failures and count.failed > limits.max_failed_share * count.calls:
            return UserError(
                f"{count.kind} {name!r} failed on {count.failed} of {count.calls} samples "
                f"({count.failed / count.calls:.0%}: {count.timed_out} timed out, {count.error} errors); the last: "
                f"{count.last}. At most {limits.max_failed_share:.0%} may fail. Fix the function, or give it more time or "
                "memory (--reward_timeout_s, --reward_memory_mb; of a RewardPool timeout_s, memory_limit_bytes), or allow more failures "
                "(--max_reward_failures; max_failed_share)"
            )
    return None
