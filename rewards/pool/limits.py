"""Limits of a pool and its workers: how many workers, the deadline of a call, memory, and how many calls may fail.

The deadline of a call: `timeout_s` for each sample of the call (`Limits.deadline_s`), counted from when a worker begins
it. On a busy machine, time that the worker waited for a processor is added, up to as much again (`Limits.is_overdue`).
The scheduler enforces it by killing the worker.

The memory of a worker: `memory_limit_bytes` beyond its size when it starts. The worker sets this limit on itself before
it calls any reward function (`limit_memory`).
"""

import os
from dataclasses import dataclass

from rewards.errors import UserError

START_LIMIT_S = 60.0
"""A worker, or the fork server, that is not ready after this many seconds counts as hung."""
ANSWER_LIMIT_S = 15.0
"""A fork server that answers nothing for so long counts as hung: forking takes a millisecond, and importing a few seconds."""


@dataclass(frozen=True)
class Limits:
    """The limits of a pool; see `RewardPool` for each.

    Raises:
        UserError: one of them is out of range.
    """

    workers: int
    timeout_s: float
    memory_limit_bytes: int | None
    max_failed_share: float
    min_failures: int

    def __post_init__(self) -> None:
        for name, is_allowed, allowed in [
            ("workers", self.workers >= 1, "from 1"),
            ("timeout_s", self.timeout_s > 0, "more than 0"),
            ("max_failed_share", 0 <= self.max_failed_share <= 1, "from 0 to 1"),
            ("min_failures", self.min_failures >= 1, "from 1"),
            (
                "memory_limit_bytes",
                self.memory_limit_bytes is None or self.memory_limit_bytes >= 2**20,
                "from 2**20, or None",
            ),
        ]:
            if not is_allowed:
                raise UserError(f"RewardPool: {name} is {getattr(self, name)!r}; it must be {allowed}")

    def deadline_s(self, samples: int) -> float:
        """Seconds that one call on so many samples may take."""
        return self.timeout_s * samples

    def is_overdue(self, samples: int, elapsed_s: float, waited_s: float) -> bool:
        """True once a call must be killed: `elapsed_s` after it began, `waited_s` of which it waited for a processor."""
        deadline_s = self.deadline_s(samples)
        # On a busy machine a call is not to blame for the time that it did not get, up to as much again.
        return elapsed_s > deadline_s + min(waited_s, deadline_s)


def default_workers() -> int:
    """One for each processor that this process may use but one, at least 1, at most 8."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(8, usable - 1))


def limit_memory(more_bytes: int) -> None:
    """Let this process grow by so much and no more, where the platform can hold it to that (Linux)."""
    try:
        import resource

        with open("/proc/self/statm") as file:
            data_pages = int(file.read().split()[5])
    except (ImportError, OSError):
        return
    # RLIMIT_DATA counts private writable memory; RLIMIT_AS would count the libraries that a plugin maps, too.
    limit = data_pages * resource.getpagesize() + more_bytes
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
