"""How a side talks to the benchmark: it waits for "go" on stdin and prints one JSON line for each iteration."""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil


class Side:
    """One side's clock. `phases` collects seconds by name within an iteration."""

    def __init__(self) -> None:
        # Libraries print to stdout as they like; the line to the benchmark is kept apart.
        self.out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)
        self.phases: dict[str, float] = {}
        self.began = self.began_cpu = 0.0

    def say(self, **message: Any) -> None:
        """One line to the benchmark."""
        self.out.write(json.dumps(message) + "\n")

    def wait(self) -> None:
        """Until the benchmark says go; ends the process when it has no more."""
        line = sys.stdin.readline()
        if not line:
            sys.exit(0)
        self.phases = {}
        self.began, self.began_cpu = time.perf_counter(), time.process_time()

    def done(self, **facts: Any) -> None:
        """Report an iteration."""
        seconds = time.perf_counter() - self.began
        peak = psutil.Process().memory_info()
        cpu = time.process_time() - self.began_cpu
        self.say(seconds=seconds, cpu_seconds=cpu, phases=self.phases, rss=peak.rss, peak=peak_bytes(), **facts)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time what runs inside."""
        begin = time.perf_counter()
        yield
        self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - begin


def peak_bytes() -> int:
    """The most memory that this process has had."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
