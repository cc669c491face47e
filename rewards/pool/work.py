"""The pool's work in pieces: what was submitted, what is handed out, what has failed."""

import threading
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from rewards.outcome import Outcome, Score
from rewards.sample import Sample


@dataclass
class FailureCount:
    """How often one function was called and failed.

    Attributes:
        calls: samples that it was called for.
        timed_out, error: those that it had no score for.
        last: the latest failure in words.
    """

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
        """Whether `result` will return or raise at once."""
        return self._done.is_set()

    def result(self, timeout_s: float | None = None) -> list[list[Score]]:
        """The scores, [function][sample], in the order of the functions and of the samples.

        Raises:
            UserError: a function returned what is no score, asks for what there is not, fails too often, or no worker
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
    """What one worker has before it: `indices` of a task's samples.

    Attributes:
        calls: the calls that the worker makes of it: one for each sample, or a single one for all.
        sent_s: when, by the monotonic clock.
        calls: how many the worker makes of it.
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

    def samples_of(self, call: int) -> Sequence[int]:
        """Which samples a call is for."""
        return self.indices if self.batched else self.indices[call : call + 1]

    def may_repeat(self, call: int) -> bool:
        """Whether a call may be done again; true once only, so that a call which kills its worker comes to an end."""
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
