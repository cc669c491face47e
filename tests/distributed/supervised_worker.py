"""Run by `test_supervised.py` under torchrun: trains small models and lets rank 0 save their weights.

torchrun --nproc_per_node=2 tests/distributed/supervised_worker.py FOLDER
"""

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from supervised_harness import make, pairs, weights  # noqa: E402

from rlvr.boost import process as processes  # noqa: E402

# So few tokens in a pass that the ranks would make different numbers of passes, and with packing so few rows that one of
# them has none to make.
RUNS = {
    "sft ddp": ("sft", {"packing": True, "attention": "eager"}),
    "sft zero2": ("sft", {"packing": True, "attention": "eager", "plugin": "zero2", "micro_batch_tokens": 24}),
    "rm ddp": ("rm", {"plugin": "ddp", "micro_batch_tokens": 40}),
    "rm zero1": ("rm", {"plugin": "zero1", "train_batch_size": 4, "accumulation_steps": 2}),
}


def main(folder: Path) -> None:
    """Train every run and save the weights and held-out metrics."""
    info = processes.start(seed=0, num_threads=1)
    results = {}
    for name, (kind, changes) in RUNS.items():
        trainer = make(kind, total_steps=3, held_out=pairs(7, seed=1) if kind == "rm" else (), **changes)
        trainer.fit()
        results[name] = {"weights": weights(trainer), "held out": trainer._evaluate()}
    if info.is_main:
        torch.save(results, folder / f"{info.world_size}.pt")
    processes.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
