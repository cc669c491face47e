"""`RewardPool` scores samples in worker processes; `grade_many` grades many answers with it."""

import os
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from types import TracebackType

from rewards.errors import UserError
from rewards.grade import grade
from rewards.outcome import Outcome, Score
from rewards.pool.cache import Cache
from rewards.pool.launch import WorkerSetup
from rewards.pool.limits import Limits, default_workers
from rewards.pool.pickling import pack
from rewards.pool.scheduler import Scheduler
from rewards.pool.submissions import FailureCount, Pending, Results, too_many_failures
from rewards.registry import RewardFunction
from rewards.sample import Sample
from rewards.tags import Tags


class RewardPool:
    """Warm worker processes that call reward functions and can be killed. Safe to use from several threads.

    A call that passes its deadline gets the outcome `timed_out`, one that raises, exits, crashes or runs out of memory
    `error`; both have no value (None), are counted in `failures`, and leave all other samples alone. Functions whose
    arguments are the response and the problem only are called once for equal samples.

    Args:
        functions: what to call on each sample.
        plugins: modules or files to import in the workers first.
        workers: how many work at a time; by default one less than there are processors, at most 8.
        timeout_s: for one call on one sample, from when a worker takes it; a batch function has it for each sample. On a
            busy machine, time that a worker waited for a processor is not counted, up to as much again (on Linux).
        memory_limit_bytes: how much a worker may grow beyond its size at the start (on Linux); None: no limit.
        max_failed_share, min_failures: a function that failed so many times, and on more than this share, is an error.
        cache_size: how many scores are kept; 0 for none.

    Raises:
        UserError: two functions of one name, a setting out of range, or a function that can't be sent to a worker.
    """

    def __init__(
        self,
        functions: Sequence[RewardFunction],
        *,
        plugins: Sequence[str] = (),
        workers: int | None = None,
        timeout_s: float = 10.0,
        memory_limit_bytes: int | None = 2 * 2**30,
        max_failed_share: float = 0.5,
        min_failures: int = 20,
        cache_size: int = 100_000,
    ) -> None:
        if not hasattr(os, "killpg"):
            raise UserError(
                "reward workers need Linux or macOS, whose processes can be ended with all that they started: on Windows take WSL 2, or "
                "workers=0 (--workers 0, --reward_workers 0), which scores in this process, without deadlines"
            )
        self.functions = list(functions)
        names = [function.name for function in self.functions]
        if len(set(names)) != len(names):
            raise UserError(f"reward functions named twice: {', '.join(names)}")
        self.limits = Limits(
            default_workers() if workers is None else workers,
            timeout_s,
            memory_limit_bytes,
            max_failed_share,
            min_failures,
        )
        if cache_size < 0:
            raise UserError(f"RewardPool: cache_size is {cache_size!r}; it must be from 0")
        self._setup = WorkerSetup(list(plugins), [pack(f, plugins) for f in self.functions], memory_limit_bytes)
        self._cache_size = cache_size
        self._failures = {function.name: FailureCount(function.kind) for function in self.functions}
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        cache = Cache(self.functions, self._cache_size)
        self._scheduler = Scheduler(self._setup, Results(self.functions, self.limits, cache, self._failures))
        self._process = os.getpid()
        self._finalizer = weakref.finalize(self, _stop, self._scheduler, self._process)

    def _start_again(self) -> None:
        """In a fork of the process that made the pool, where its thread is not."""
        with self._lock:
            if self._process != os.getpid():
                self._finalizer.detach()
                self._scheduler.abandon()
                self._start()

    @property
    def failures(self) -> Mapping[str, FailureCount]:
        """By function name: calls, and those that timed out or failed."""
        return self._failures

    def submit(self, samples: Sequence[Sample]) -> Pending:
        """Begin to score; returns at once, unless very much is waiting already.

        Raises:
            UserError: workers can't start, or a function has failed too often.
            RuntimeError: the pool is closed.
        """
        if self._process != os.getpid():
            self._start_again()
        if self._closed:
            raise RuntimeError("the reward pool is closed")
        if error := too_many_failures(self._failures, self.limits):
            raise error
        pending = Pending(samples, len(self.functions))
        self._scheduler.submissions.put(pending)
        return pending

    def score(self, samples: Sequence[Sample]) -> list[list[Score]]:
        """A list for each function with its score for each sample, in order. See `submit` and `Pending.result`."""
        return self.submit(samples).result()

    def close(self) -> None:
        """End the workers. Threads that wait for scores get a RuntimeError."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> "RewardPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _stop(engine: Scheduler, process: int) -> None:
    if process == os.getpid():
        engine.stop()


_BATCH, _MAX_BATCHES = 2000, 8


def grade_pair(response: str, gold: str | None, tags: Tags | None) -> Outcome:
    """`grade`, as a reward function."""
    return grade(response, gold, tags=tags)


def grade_many(
    pairs: Iterable[tuple[str, str]], *, tags: Tags | None = None, workers: int | None = None, timeout_s: float = 10.0
) -> list[Outcome]:
    """`grade` each (response, gold), in parallel; outcomes in order.

    Args:
        pairs: read as it is graded; may be long.
        tags: as in `grade`.
        workers: processes (see `RewardPool`); 0: this process grades, without deadlines.
        timeout_s: for each pair; one that takes longer is `timed_out`.

    >>> [outcome.status for outcome in grade_many([("\\\\boxed{4}", "4"), ("5", "4")], workers=0)]
    ['correct', 'wrong']
    """
    if workers is not None and workers < 0:
        raise UserError(f"grade_many: workers is {workers}; it must be from 0")
    rest = iter(pairs)
    first = list(islice(rest, 2))
    if workers == 0 or len(first) < 2:
        return [grade(response, gold, tags=tags) for response, gold in chain(first, rest)]
    samples = (Sample(response, gold, tags=tags) for response, gold in chain(first, rest))
    function = RewardFunction("grade", grade_pair, "rewards.pool.pool:grade_pair")
    outcomes: list[Outcome] = []
    waiting: deque[Pending] = deque()
    with RewardPool([function], workers=workers, timeout_s=timeout_s, max_failed_share=1.0) as pool:
        while some := list(islice(samples, _BATCH)):
            waiting.append(pool.submit(some))
            if len(waiting) > _MAX_BATCHES:
                outcomes += _outcomes(waiting.popleft())
        while waiting:
            outcomes += _outcomes(waiting.popleft())
    return outcomes


def _outcomes(pending: Pending) -> list[Outcome]:
    return [score.outcome for score in pending.result()[0] if score.outcome is not None]
