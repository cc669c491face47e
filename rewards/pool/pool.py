"""`RewardPool`: scores samples in worker processes."""

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType

from rewards.errors import UserError
from rewards.outcome import Score
from rewards.pool.cache import Cache
from rewards.pool.carry import pack
from rewards.pool.engine import Engine
from rewards.pool.ledger import Ledger, Limits, too_many_failures
from rewards.pool.starting import Load
from rewards.pool.work import FailureCount, Pending
from rewards.registry import RewardFunction
from rewards.sample import Sample


def default_workers() -> int:
    """One for each processor that this process may use but one, at least 1, at most 8."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, usable - 1))


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
        self.functions = list(functions)
        names = [function.name for function in self.functions]
        if len(set(names)) != len(names):
            raise UserError(f"reward functions named twice: {', '.join(names)}")
        self.limits = Limits(
            default_workers() if workers is None else workers, timeout_s, max_failed_share, min_failures
        )
        _check(self.limits, memory_limit_bytes, cache_size)
        self._load = Load(list(plugins), [pack(f, plugins) for f in self.functions], memory_limit_bytes)
        self._cache_size = cache_size
        self._failures = {name: FailureCount() for name in names}
        self._lock = threading.Lock()
        self._closed = False
        self._start()

    def _start(self) -> None:
        cache = Cache(self.functions, self._cache_size)
        self._engine = Engine(self._load, Ledger(self.functions, self.limits, cache, self._failures))
        self._process = os.getpid()
        self._finalizer = weakref.finalize(self, _stop, self._engine, self._process)

    def _start_again(self) -> None:
        """In a fork of the process that made the pool, where its thread is not."""
        with self._lock:
            if self._process != os.getpid():
                self._finalizer.detach()
                self._engine.abandon()
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
        self._engine.inbox.put(pending)
        return pending

    def score(self, samples: Sequence[Sample]) -> list[list[Score]]:
        """A list for each function with its score for each sample, in order. See `submit` and `Pending.result`."""
        return self.submit(samples).result()

    def close(self) -> None:
        """End the workers. Whoever waits for scores gets a RuntimeError."""
        self._closed = True
        self._finalizer()

    def __enter__(self) -> "RewardPool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _stop(engine: Engine, process: int) -> None:
    if process == os.getpid():
        engine.stop()


def _check(limits: Limits, memory_limit_bytes: int | None, cache_size: int) -> None:
    for name, value, allowed in [
        ("workers", limits.workers, limits.workers >= 1),
        ("timeout_s", limits.timeout_s, limits.timeout_s > 0),
        ("max_failed_share", limits.max_failed_share, 0 <= limits.max_failed_share <= 1),
        ("min_failures", limits.min_failures, limits.min_failures >= 1),
        ("memory_limit_bytes", memory_limit_bytes, memory_limit_bytes is None or memory_limit_bytes >= 2**20),
        ("cache_size", cache_size, cache_size >= 0),
    ]:
        if not allowed:
            least = {
                "timeout_s": "more than 0",
                "max_failed_share": "from 0 to 1",
                "memory_limit_bytes": "from 2**20, or None",
            }
            floor = "from 0" if name == "cache_size" else "from 1"
            raise UserError(f"RewardPool: {name} is {value!r}; it must be {least.get(name, floor)}")
