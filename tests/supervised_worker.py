"""Run by `tests/distributed/test_supervised.py` in two processes: trains small models and lets rank 0 save their weights."""

from typing import Any

import torch
from supervised_harness import make, pairs, weights

from rlvr.boost import process as processes

# So few tokens in a pass that the ranks would make different numbers of passes, and with packing so few rows that one of
# them has none to make.
RUNS = {
    "sft ddp": ("sft", {"packing": True, "attention": "eager"}),
    "sft zero2": ("sft", {"packing": True, "attention": "eager", "plugin": "zero2", "micro_batch_tokens": 24}),
    "sft fsdp": ("sft", {"plugin": "fsdp", "micro_batch_tokens": 24}),
    "rm fsdp": ("rm", {"plugin": "fsdp", "micro_batch_tokens": 40}),
    "rm ddp": ("rm", {"plugin": "ddp", "micro_batch_tokens": 40}),
    "rm zero1": ("rm", {"plugin": "zero1", "train_batch_size": 4, "accumulation_steps": 2}),
}


def train_all() -> dict[str, dict[str, Any]]:
    """Train every run; the weights and held-out metrics of each."""
    results = {}
    for name, (kind, changes) in RUNS.items():
        trainer = make(kind, max_steps=3, held_out=pairs(7, seed=1) if kind == "rm" else (), **changes)
        trainer.fit()
        results[name] = {"weights": weights(trainer), "held out": trainer._evaluate()}
    return results


def main(path: str) -> None:
    info = processes.start(seed=0, num_threads=1)
    results = train_all()
    if info.is_main:
        torch.save(results, path)
    processes.barrier()
