"""Iterations of PPO by one or two processes, timed and counted. `benchmarks.scaling` starts this file under torchrun.

    python -m torch.distributed.run --standalone --nproc_per_node=2 -m benchmarks.sides.cases JSON

JSON: {"cores": of each process, or none; "iterations": timed ones; "cases": [{"work", "batch", "plugin", "count"}, ...]}.
Rank 0 prints a line for each case.
"""

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.sides.rlvr_ppo import make_trainer
from benchmarks.sides.work import MINI_BATCHES, Work
from benchmarks.traffic import WIDTHS, Asked, Passes, bytes_sent, least, ring_bytes, weights_of
from rlvr.trainer.callbacks import Callback


class Times(Callback):
    """Collects [seconds of the slowest process, processor seconds of all] of each iteration."""

    def __init__(self) -> None:
        self.seen: list[list[float]] = []

    def on_episode_start(self, trainer: Any, episode: int) -> None:
        self.begin = time.perf_counter(), time.process_time()

    def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
        clock = torch.tensor(time.perf_counter() - self.begin[0], dtype=torch.float64)
        cpu = torch.tensor(time.process_time() - self.begin[1], dtype=torch.float64)
        dist.all_reduce(clock, dist.ReduceOp.MAX)
        dist.all_reduce(cpu)
        self.seen.append([clock.item(), cpu.item()])


def run(case: dict[str, Any], iterations: int) -> dict[str, Any]:
    """Medians of an iteration's seconds after one to warm up, and if asked for the traffic of one more."""
    work = Work(**case["work"])
    trainer, loader = make_trainer(work, case["batch"], case["plugin"])
    times = Times()
    trainer.callbacks.append(times)
    trainer.fit(1 + iterations, 1, 1, loader)
    clock, cpu = (median(column) for column in zip(*times.seen[1:], strict=True))
    result = {**case, "processes": dist.get_world_size(), "seconds": clock, "cpu_seconds": cpu}
    if case["count"]:
        result["traffic"] = count(
            trainer, lambda: trainer.fit(trainer.progress.episode + 1, 1, 1, loader), work, case["plugin"]
        )
    return result


def count(trainer: Any, iterate: Callable[[], None], work: Work, plugin: str) -> dict[str, Any]:
    """Bytes of an iteration in each process: the least, what was asked for (as rings), by operation, and what was sent."""
    roles = {name: role for name, role in (("actor", trainer.actor), ("critic", trainer.critic)) if role is not None}
    reference = trainer.maker.reference
    models = roles if reference is None else {**roles, "reference": reference}
    seen = {name: _count_passes(model) for name, model in models.items()}
    before = bytes_sent()
    with Asked() as asked:
        iterate()
    sent = torch.tensor(float(bytes_sent() - before), dtype=torch.float64)
    dist.all_reduce(sent, dist.ReduceOp.MAX)
    processes, lowest = dist.get_world_size(), 0.0
    for name, role in roles.items():
        weights = weights_of(role.unwrapped)
        passes = Passes(MINI_BATCHES, seen[name]["learning"], seen[name]["scoring"], int(name == "actor"))
        lowest += least(plugin, work.precision, weights.learned, weights.layers, passes, processes)
    if plugin == "fsdp" and reference is not None:  # sharded too: all of it is gathered for each pass
        gathered = sum(p.numel() for p in reference.model.parameters()) * seen["reference"]["scoring"]
        lowest += ring_bytes("allgather", WIDTHS[plugin, work.precision][0] * gathered, processes)
    return {
        "least": lowest, "asked": asked.as_rings(processes), "sent": sent.item(), "operations": dict(asked.bytes),
        "passes": {name: dict(counts) for name, counts in seen.items()},
    }  # fmt: skip


def _count_passes(role: Any) -> Counter[str]:
    plain, counts = role.forward, Counter(learning=0, scoring=0)

    def forward(*args: Any, **kwargs: Any) -> Any:
        counts["learning" if torch.is_grad_enabled() else "scoring"] += 1
        return plain(*args, **kwargs)

    role.forward = forward
    return counts


def main() -> None:
    request = json.loads(sys.argv[1])
    if request["cores"]:
        os.sched_setaffinity(0, {request["cores"][int(os.environ["LOCAL_RANK"])]})
    torch.set_num_threads(1)
    for case in request["cases"]:
        result = run(case, request["iterations"])
        if dist.get_rank() == 0:
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
