"""An iteration on a busy machine: its time alone and beside two processes that never rest, in turn, in one run.

    python -m benchmarks.busy [--model smollm2-135m] [--recipe grpo] [--iterations 2] [--markdown benchmarks/results/busy.md]

Two threads on two cores beside two such processes have half of the machine each: twice the time would be fair, and what waits for
one another loses more. Exits with 1 if an iteration takes more than three times its time alone.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

sys.path[0] = str(Path(__file__).parents[1])  # benchmarks/rewards.py must not stand for the package

from benchmarks.machine import processor  # noqa: E402
from benchmarks.sides.alternate import Runner, ours  # noqa: E402
from benchmarks.sides.real import write_work  # noqa: E402
from benchmarks.sides.versus import REAL_TOKENS  # noqa: E402
from benchmarks.sides.work import Work  # noqa: E402

MOST = 3.0
NEIGHBOURS = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--recipe", choices=["grpo", "ppo"], default="grpo")
    parser.add_argument("--iterations", type=int, default=2, help="alone and in company each, after one to warm up")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--problems", type=Path, help="JSON lines (default: ../shared/data/problems)")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rlvr") as folder:
        write_work(given.model, given.recipe, Path(folder), given.problems)
        work = Work(given.model, REAL_TOKENS, "realistic", "bf16", given.recipe, folder=folder)
        runner = Runner("rlvr", ours("rlvr_ppo"), work, given.threads)
        try:
            runner.iterate()
            alone, beside = [], []
            for _ in range(given.iterations):
                alone.append(runner.iterate()["seconds"])
                with neighbours(NEIGHBOURS):
                    beside.append(runner.iterate()["seconds"])
                print(f"{alone[-1]:.1f} s alone, {beside[-1]:.1f} s in company", file=sys.stderr, flush=True)
        finally:
            runner.end()
    times = median(beside) / median(alone)
    line = (
        f"| {given.model}, {given.recipe} | {median(alone):.1f} s | {median(beside):.1f} s | {times:.2f} | {MOST:g} |\n"
    )
    head = (
        f"| iteration, bf16 | alone | beside {NEIGHBOURS} busy processes | times | at most |\n|---|---|---|---|---|\n"
    )
    text = f"{head}{line}\n{given.threads} threads, {os.cpu_count()} cores of {processor()}.\n"
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text)
    return int(times > MOST)


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many processes that compute without end while the block runs."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
