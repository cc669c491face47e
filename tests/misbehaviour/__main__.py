"""Reward functions that misbehave, through the real pool, and some of them through a training run.

    python -m tests.misbehaviour            # all of them
    python -m tests.misbehaviour --only fork

Each act (`tests/misbehaviour/acts.py`) is scored among good samples. It must not stop or hang the pool, cost a good sample its score
(unless it changed the worker that came to score it), or leave a process, a thread or a descriptor behind. Prints a row for each, and
exits with 1 if one did.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import leftovers  # noqa: E402

from .acts import ACTS  # noqa: E402
from .trial import IN_RUNS, Trial, run_with, trial  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="acts with this in their name")
    parser.add_argument("--no_runs", action="store_true", help="through the pool alone")
    arguments = parser.parse_args()
    leftovers.mark()
    chosen = [name for name in ACTS if arguments.only in name]
    print("| act | through | what came of it | good samples that failed |\n|---|---|---|---|")
    failed = sum(_row(name, "the pool", trial) for name in chosen)
    runs = [] if arguments.no_runs else [name for name in IN_RUNS if arguments.only in name]
    with tempfile.TemporaryDirectory() as folder:
        failed += sum(_row(name, "a run", lambda n: run_with(n, Path(folder) / n.replace(" ", "-"))) for name in runs)
    print(f"\n{len(chosen)} acts through the pool and {len(runs)} through runs, {failed} with a wrong outcome")
    return int(failed > 0)


def _row(name: str, through: str, how: Callable[[str], Trial]) -> bool:
    found = how(name)
    wrong = f" **{found.wrong}**" if found.wrong else ""
    print(f"| {name} | {through} | {found.came}{wrong} | {found.others} |", flush=True)
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
