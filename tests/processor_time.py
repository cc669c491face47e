"""Processor time of a call, for tests that a text of any kind is read in time."""

import gc
import sys
import time
from collections.abc import Callable

TRIES = 3


def seconds(call: Callable[[], object], *, limit_s: float) -> float:
    """The least processor time of this thread over up to three tries; the first one within the limit ends them.

    One try is not enough: where a machine is shared, time that its host gave to others is counted, too (12 ms were once 1.2 s).
    What is slow by itself is slow each time, as verdicts kept from the try before are forgotten.
    """
    least_s = float("inf")
    for _ in range(TRIES):
        forget_verdicts()
        gc.disable()
        start = time.thread_time()
        try:
            call()
        finally:
            least_s = min(least_s, time.thread_time() - start)
            gc.enable()
        if least_s < limit_s:
            break
    return least_s


def forget_verdicts() -> None:
    """Empty every cache of the grader."""
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == "rewards"]:
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
