"""Finds what tests leave behind: processes, orphans too, and temporary files."""

import os
import tempfile
import time
from pathlib import Path

import psutil

MARK = "RLVR_TESTS_OF"  # in the environment of this process and of all that it and they start
# These serve one interpreter and end with it: the reader of difficult golds, Python's own, and what forks ranks for tests.
LASTING = ("rewards.maths.fallback", "multiprocessing.resource_tracker", "multiprocessing.forkserver", "tests.ranks")
GRACE_S = 60.0


def mark() -> None:
    """From here on, processes are known by a mark and temporary files lie in a folder of this process alone."""
    os.environ[MARK] = str(os.getpid())
    # Short: Ray's sockets lie beneath it, and a socket's path has at most 107 characters.
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="rt")
    tempfile.tempdir = None


def marked() -> set[psutil.Process]:
    """The living processes that this one or its descendants started, whoever is their parent by now."""
    found = set()
    for process in psutil.process_iter():
        try:
            ours = process.environ().get(MARK) == str(os.getpid())
            if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.add(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def is_alive(process: psutil.Process) -> bool:
    """False of a zombie, which has only to be collected by whoever inherited it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def lasting(process: psutil.Process) -> bool:
    """Whether it ends with this interpreter."""
    try:
        words = " ".join(process.cmdline())
        return process.ppid() == os.getpid() and any(word in words for word in LASTING)
    except psutil.NoSuchProcess:
        return True


def processes(before: set[psutil.Process]) -> list[str]:
    """What runs that did not before, once it had time to end."""
    end = time.monotonic() + GRACE_S
    while True:
        left = [process for process in marked() - before if not lasting(process)]
        if not left or time.monotonic() > end:
            return [_name(process) for process in left]
        time.sleep(0.1)


def files() -> list[str]:
    """What lies in the temporary folder."""
    return sorted(str(path) for path in Path(os.environ["TMPDIR"]).rglob("*") if not path.is_dir())


def _name(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())[:300]}"
    except psutil.NoSuchProcess:
        return f"{process.pid}"
