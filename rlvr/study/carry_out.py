"""Carrying out a study: each run is `rlvr train` in a process of its own, some at a time.

A study may be stopped at any time: a finished run is not made again, and one that was stopped goes on from its newest checkpoint.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from pathlib import Path
from typing import Any

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
    """
    for run in runs:
        check_folder(run)
    missing = [run for run in runs if not run.is_finished]
    tell(f"{len(runs) - len(missing)} of {len(runs)} runs are finished, {len(missing)} to do, {jobs} at a time")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    started, failed = time.monotonic(), list[Run]()
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = {pool.submit(_train, run, threads): run for run in missing}
        for done, ended in enumerate(as_completed(waiting), start=1):
            run, elapsed = waiting[ended], time.monotonic() - started
            if ended.result():
                failed.append(run)
            left = timedelta(seconds=round(elapsed / done * (len(missing) - done)))
            said = f"failed, see {run.folder / LOG}" if ended.result() else "done"
            tell(
                f"{run.name}: {said}; {done} of {len(missing)}, elapsed {timedelta(seconds=round(elapsed))}, left {left}"
            )
    finally:  # Ctrl-C reaches the runs too, which save and stop; no other is begun
        pool.shutdown(cancel_futures=True)
    if failed:
        raise UserError(
            f"failed: {', '.join(run.name for run in failed)}; see {LOG} in their folders, and start the study again"
        )


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


def _train(run: Run, threads: int) -> int:
    """One run; goes on where an earlier one was stopped. Returns the status that it ended with."""
    run.folder.mkdir(parents=True, exist_ok=True)
    settings = run.folder.parent / f"{run.folder.name}.yaml"
    settings.write_text(run.as_yaml(), encoding="utf-8")
    words = ["--config", str(settings), "--save_path", str(run.folder), "--resume", "--no_progress"]
    if run.config().train.num_threads is None:
        words += ["--num_threads", str(threads)]
    with (run.folder / LOG).open("a") as log:
        command = [sys.executable, "-m", "rlvr", "train", *words]
        return subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=Path.cwd()).returncode
