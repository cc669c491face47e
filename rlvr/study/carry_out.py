"""Carrying out a study: each run is `rlvr train` in a process of its own, some at a time.

A study may be stopped at any time: a finished run is not made again, and one that was stopped goes on from its newest checkpoint.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import timedelta
from typing import Any

from rlvr.boost.process import environment_alone
from rlvr.config import load_yaml, to_dict
from rlvr.errors import UserError
from rlvr.study.plan import Run

SETTINGS, LOG = "config.yaml", "log.txt"
# What a run of a folder and one that would begin now must have in common; the other sections say where files lie and how they
# are watched.
COMPARED = ("model", "data", "template", "reward", "env", "rollout", "algo", "train", "parallel", "eval")
MAY_DIFFER = ("num_threads",)


def carry_out(runs: Sequence[Run], jobs: int, tell: Callable[[str], None]) -> None:
    """Train the runs that are not finished, `jobs` at a time.

    Args:
        tell: receives a line when a run ends, with how many are left and for how long.

    Raises:
        UserError: a folder holds a run with other settings (before anything is trained); or runs failed (after the others).
        KeyboardInterrupt: Ctrl-C or SIGTERM, after the runs that were under way have saved and stopped.
    """
    for run in runs:
        check_folder(run)
    missing = [run for run in runs if not run.is_finished]
    tell(f"{len(runs) - len(missing)} of {len(runs)} runs are finished, {len(missing)} to do, {jobs} at a time")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    started, failed = time.monotonic(), list[Run]()
    with _Workers(jobs) as workers:
        waiting = {workers.submit(run, threads): run for run in missing}
        for done, ended in enumerate(as_completed(waiting), start=1):
            run, elapsed = waiting[ended], time.monotonic() - started
            if ended.result():
                failed.append(run)
            left = timedelta(seconds=round(elapsed / done * (len(missing) - done)))
            said = f"failed, see {run.folder / LOG}" if ended.result() else "done"
            tell(
                f"{run.name}: {said}; {done} of {len(missing)}, elapsed {timedelta(seconds=round(elapsed))}, left {left}"
            )
    if failed:
        raise UserError(
            f"failed: {', '.join(run.name for run in failed)}; see {LOG} in their folders, and start the study again"
        )


class _Workers:
    """Processes that train, some at a time. When the block is left early, those under way are asked to save and stop, once each: they
    are in sessions of their own, so that Ctrl-C, which a terminal sends to all, doesn't reach them besides."""

    def __init__(self, jobs: int) -> None:
        self._pool = ThreadPoolExecutor(jobs)
        self._lock, self._stopping = threading.Lock(), False
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "_Workers":
        self._before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._stopping = True
            for process in self._processes:
                if process.poll() is None:
                    process.terminate()
        self._pool.shutdown(cancel_futures=True)
        signal.signal(signal.SIGTERM, self._before)

    def submit(self, run: Run, threads: int) -> Future[int]:
        """Train a run when its turn comes; the result is the status that it ended with."""
        return self._pool.submit(self._train, run, threads)

    def _train(self, run: Run, threads: int) -> int:
        run.folder.mkdir(parents=True, exist_ok=True)
        with (run.folder / LOG).open("a") as log:
            with self._lock:
                if self._stopping:
                    return 1
                process = subprocess.Popen(
                    command_of(run, threads),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env=environment_alone(),
                )
                self._processes.append(process)
            return process.wait()


def command_of(run: Run, threads: int) -> list[str]:
    """The words that train a run, which goes on where an earlier one was stopped; writes its settings beside its folder."""
    settings = run.folder.parent / f"{run.folder.name}.yaml"
    settings.write_text(run.as_yaml(), encoding="utf-8")
    words = ["--config", str(settings), "--save_path", str(run.folder), "--resume", "--no_progress"]
    if run.config().train.num_threads is None:
        words += ["--num_threads", str(threads)]
    return [sys.executable, "-m", "rlvr", "train", *words]


def check_folder(run: Run) -> None:
    """Refuse a folder that holds a run with other settings than one that began now would have.

    Raises:
        UserError: names the setting, and both values.
    """
    if not (run.folder / SETTINGS).is_file():
        return
    difference = _difference(load_yaml(str(run.folder / SETTINGS)), to_dict(run.config()))
    if difference is not None:
        key, then, now = difference
        raise UserError(
            f"{run.folder} was made with {key} {then!r}, and now it is {now!r}: delete that folder, or give another `out`"
        )


def _difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, Any, Any] | None:
    for section in COMPARED:
        for key, value in now[section].items():
            was = then.get(section, {}).get(key)
            if was != value and key not in MAY_DIFFER:
                return key, was, value
    return None
