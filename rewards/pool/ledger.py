"""Where scores are put together: results to the submissions they belong to, failures counted, the cache filled."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from rewards.errors import UserError
from rewards.outcome import Outcome, Score
from rewards.pool.cache import Cache
from rewards.pool.work import Chunk, FailureCount, Pending, Task
from rewards.registry import RewardFunction

Result = list[Score] | dict[str, str]
"""What one call came to: a score for each of its samples, or {"error": text} or {"mistake": text}."""


@dataclass(frozen=True)
class Limits:
    """What a pool allows; see `RewardPool`."""

    workers: int
    timeout_s: float
    max_failed_share: float
    min_failures: int


class Ledger:
    """Used by the pool's thread alone.

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
        """A new submission, and what is to be done for it."""
        if not pending.left:
            return []
        self.unfinished[id(pending)] = pending
        return [Task(pending, f, range(len(pending.samples))) for f in range(len(self.functions))]

    def keys(self, pending: Pending, function: int, indices: Sequence[int]) -> tuple[list[int], list[Hashable]]:
        """Put in what the cache has; the samples that remain, each with what it is to be kept under (None: not at all)."""
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

    def settle(self, chunk: Chunk, results: Sequence[Result]) -> None:
        """Results of the chunk's first calls.

        Raises:
            ValueError: a call has not as many scores as samples.
        """
        for call, result in enumerate(results[: chunk.end]):
            if not isinstance(result, dict):
                self._scored(chunk, call, result)
            elif "mistake" in result:
                self.fail(chunk.pending, UserError(result["mistake"]))
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
                f"reward function {name!r} failed on {count.failed} of {count.calls} samples "
                f"({count.failed / count.calls:.0%}: {count.timed_out} timed out, {count.error} errors); the last: "
                f"{count.last}. At most {limits.max_failed_share:.0%} may fail. Mend the function, or give it more time or "
                "memory (timeout_s, memory_limit_bytes), or allow more failures (max_failed_share)"
            )
    return None
