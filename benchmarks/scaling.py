"""How an iteration's time grows with tokens, batch and processes. `grow` starts this file under torchrun for each case."""

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
START = (64, 64, 1)
"""Response tokens, prompts, processes; of these, one changes at a time."""
CASES = (START, (32, 64, 1), (128, 64, 1), (64, 16, 1), (64, 32, 1), (64, 64, 2))


def grow(size: str, precision: str, recipe: str, iterations: int) -> list[dict[str, Any]]:
    """A row for each case: seconds of an iteration by the clock and of all processes' threads, beside the first case's."""
    from benchmarks.sides.work import Work

    rows: list[dict[str, Any]] = []
    for tokens, batch, processes in CASES:
        work = Work(size, tokens, "fixed", precision, recipe)
        print(f"{tokens} tokens, {batch} prompts, {processes} process(es)", file=sys.stderr)
        clock, cpu = _run({"work": asdict(work), "batch": batch, "iterations": iterations}, processes)
        first = rows[0] if rows else {"seconds": clock, "CPU seconds": cpu}
        rows.append(
            {
                "response tokens": tokens, "prompts": batch, "processes": processes, "seconds": round(clock, 3),
                "CPU seconds": round(cpu, 3), "tokens/s": round(tokens * batch / clock),
                "times the first": round(clock / first["seconds"], 2),
                "times the first's CPU": round(cpu / first["CPU seconds"], 2),
            }
        )  # fmt: skip
    return rows


def _run(case: dict[str, Any], processes: int) -> tuple[float, float]:
    """Medians of an iteration's seconds: of the slowest process, and of processor time in all."""
    launch = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={processes}"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *launch, "-m", "benchmarks.scaling", json.dumps(case)],
        env=environment, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr[-3000:]}")
    seconds = json.loads(done.stdout.splitlines()[-1])
    return median(s[0] for s in seconds), median(s[1] for s in seconds)


def main() -> None:
    """One process of a case: prints, in the first process, [seconds, CPU seconds] of each iteration after the first."""
    import torch
    import torch.distributed as dist

    from benchmarks.sides.rlvr_ppo import make_trainer
    from benchmarks.sides.work import Work
    from rlvr.trainer.callbacks import Callback

    case = json.loads(sys.argv[1])
    seen: list[list[float]] = []

    class Times(Callback):
        def on_episode_start(self, trainer: Any, episode: int) -> None:
            self.begin = time.perf_counter(), time.process_time()

        def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
            clock = torch.tensor(time.perf_counter() - self.begin[0], dtype=torch.float64)
            cpu = torch.tensor(time.process_time() - self.begin[1], dtype=torch.float64)
            dist.all_reduce(clock, dist.ReduceOp.MAX)
            dist.all_reduce(cpu)
            seen.append([clock.item(), cpu.item()])

    trainer, loader = make_trainer(Work(**case["work"]), case["batch"])
    trainer.callbacks.append(Times())
    trainer.fit(case["iterations"] + 1, 1, 1, loader)
    if trainer.is_main:
        print(json.dumps(seen[1:]), flush=True)


if __name__ == "__main__":
    main()
