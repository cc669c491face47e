"""What Ray costs: an iteration with actor, critic, reference and rewards in processes of their own, beside one under torchrun.

    uv run python -m benchmarks.ray_overhead                       # model M, fp32, some minutes
    uv run python -m benchmarks.ray_overhead --all-cores           # the roles may work at once

The two do the same iterations in turn, so that whatever else the machine does falls on both. By default all processes of
both share one core: roles that work at once would hide what passing things between them costs. Beside the time by the clock
stands the processor time of all processes of each side, which other work on the machine hardly changes. Exits with 1 if an
iteration on Ray takes more than 1.15 times that under torchrun by the clock (median of the iterations' ratios).
"""

import argparse
import json
import os
import sys
from statistics import median
from typing import Any

from benchmarks.machine import processor
from benchmarks.sides.alternate import Runner, ours
from benchmarks.sides.work import Work

TARGET = 1.15
CLOCKS = {"seconds": "seconds", "CPU seconds": "tree_cpu_seconds"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="M", choices=["S", "M"])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--tokens", type=int, default=64, help="of each response")
    parser.add_argument("--iterations", type=int, default=6)
    parser.add_argument("--all-cores", action="store_true", help="let the roles work at once")
    given = parser.parse_args()
    work = Work(given.size, given.tokens, "fixed", given.precision)
    result = {
        "processor": processor(),
        "cores": os.cpu_count() if given.all_cores else 1,
        "work": vars(work),
        **overhead(work, given.iterations, one_core=not given.all_cores),
    }
    print(json.dumps(result, indent=1))
    return int(result["seconds"]["ratio"] > TARGET)


def overhead(work: Work, iterations: int, one_core: bool) -> dict[str, Any]:
    """Both sides' times by each clock, and phases."""
    if one_core:
        os.environ["BENCHMARK_CORE"] = str(max(os.sched_getaffinity(0)))
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    seen = measure(work, iterations)
    return {
        **{name: compare(seen, key) for name, key in CLOCKS.items()},
        "phases": {side: phases(reports) for side, reports in seen.items()},
    }


def measure(work: Work, iterations: int) -> dict[str, list[dict[str, Any]]]:
    """The iterations of each side, which take turns; each side's first is not among them."""
    module = ours("on_ray")[1:]
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=1"]
    runners = [
        Runner("torchrun", [*launch, *module, "torchrun"], work, 1),
        Runner("ray", [sys.executable, *module, "ray"], work, 1),
    ]
    seen: dict[str, list[dict[str, Any]]] = {runner.name: [] for runner in runners}
    try:
        for _ in range(1 + iterations):
            for runner in runners:
                report = runner.iterate()
                seen[runner.name].append(report)
                said = ", ".join(f"{report[key]:.2f} {name}" for name, key in CLOCKS.items())
                print(f"  {runner.name}: {said}", file=sys.stderr, flush=True)
    finally:
        for runner in runners:
            runner.end()
    return {name: reports[1:] for name, reports in seen.items()}


def compare(seen: dict[str, list[dict[str, Any]]], key: str) -> dict[str, Any]:
    """Medians of both sides, and the median of the ratios of iterations that came one after the other."""
    torchrun, ray = ([report[key] for report in seen[side]] for side in ("torchrun", "ray"))
    ratios = [r / t for t, r in zip(torchrun, ray, strict=True)]
    return {
        "torchrun": round(median(torchrun), 3),
        "ray": round(median(ray), 3),
        "ratio": round(median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


def phases(reports: list[dict[str, Any]]) -> dict[str, float]:
    """Median seconds of each phase."""
    return {name: round(median(r["phases"][name] for r in reports), 3) for name in reports[0]["phases"]}


if __name__ == "__main__":
    sys.exit(main())
