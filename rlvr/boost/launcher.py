"""What becomes of a process whose launcher dies before all processes have met: it ends, too.

torch would go on asking the launcher's store for half an hour. Later on there is no need: the others then end by themselves, and this one's
next collective with them.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

LAUNCHER = os.getppid()
"""Taken when this is imported, long before torch is: the launcher may die meanwhile."""
LOOK_EVERY_S = 0.5


@contextmanager
def ends_with_launcher() -> Iterator[None]:
    """Within the block, end this process with status 1 soon after torchrun, which started it, has ended."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # started by something else, whose end may mean nothing
        yield
        return
    done = threading.Event()
    thread = threading.Thread(target=_watch, args=(done,), name="launcher", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _watch(done: threading.Event) -> None:
    while not done.wait(LOOK_EVERY_S):
        if os.getppid() != LAUNCHER:
            told = f"rank {os.environ.get('RANK', '?')} ends: torchrun, which started it, is gone, and the others were not found yet\n"
            os.write(2, told.encode())
            os._exit(1)
