"""Runs of the commands on `second_device`, in a process of their own: PyTorch takes a backend of this kind once and for ever.

python second_device_worker.py FOLDER [NAME ...]      # run NAME lands in FOLDER/NAME; FOLDER/found.json says what was seen
"""

import json
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import second_device
import torch
from saved_models import save_micro_model

TRAIN: dict[str, Any] = {
    "mixed_precision": "fp32",
    "num_episodes": 1,
    "num_collect_steps": 1,
    "num_update_steps": 1,
    "experience_batch_size": 4,
    "train_batch_size": 4,
    "generation_batch_size": 4,
    "max_new_tokens": 6,
    "max_length": 160,
    "eval_samples": 1,
    "save_interval": 1,
    "reward_functions": "gsm8k_reward_fn",
    "template_check": "warn",
}
WHOLE = TRAIN | {"num_episodes": 2, "eval_interval": 1}
OFFLOAD = {"offload_inference_models": True, "buffer_cpu_offload": True, "empty_device_cache": True}
PLUGINS = (("ddp", "bf16"), ("ddp", "fp16"), ("zero2", "bf16"), ("zero2_cpu", "fp32"), ("fsdp", "bf16"))


def commands(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """By name of the run: its command and settings."""
    pairs = folder / "pairs.jsonl"
    rows = ({"question": f"{n}+1=?", "chosen": str(n + 1), "rejected": str(n)} for n in range(4))
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    supervised = {"mixed_precision": "fp32", "max_steps": 1, "train_batch_size": 2, "preference_dataset": pairs}
    neural = {"neural_reward_model": True, "rm_checkpoint_path": folder / "reward-model" / "reward_model" / "modeling"}
    groups = {"estimator": "grpo", "num_generations": 2, "top_k": 5, "grad_checkpoint": True}
    found = {
        "whole": ("train", WHOLE),
        "reward-model": ("reward-model", supervised),
        "neural": ("train", TRAIN | OFFLOAD | neural),
        "groups": ("train", TRAIN | groups),
    }
    return found | {f"{p}-{b}": ("train", TRAIN | {"plugin": p, "mixed_precision": b}) for p, b in PLUGINS}


def call(command: str, settings: dict[str, Any]) -> int | str:
    """The command's exit status, or what it raised."""
    from rlvr.cli.main import main

    words = [command]
    for name, value in settings.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    try:
        return main(words)
    except Exception as error:  # told by the test, with what the others did
        traceback.print_exc()
        return repr(error)[:300]


def strict() -> dict[str, bool]:
    """What the device refuses, as CUDA does; without this the runs would show nothing."""
    here, there = torch.ones(2, 2, device=second_device.NAME), torch.ones(2, 2)
    mixing = {
        "add": lambda: here + there,
        "matmul": lambda: here @ there,
        "cat": lambda: torch.cat([here, there]),
        "where": lambda: torch.where(there > 0, here, here),
        "in place": lambda: here.add_(there),
        "numpy": lambda: here.numpy(),
        "generator": lambda: torch.rand(2, device=second_device.NAME, generator=torch.Generator()),
        "group": lambda: torch.distributed.all_reduce(there),
        "the other's state": lambda: torch.get_device_module(second_device.NAME).get_rng_state(1),
    }
    return {name: _refused(mix) for name, mix in mixing.items()}


def _refused(mix: Callable[[], object]) -> bool:
    try:
        mix()
    except (RuntimeError, TypeError):
        return True
    return False


def main(folder: Path, names: list[str]) -> None:
    model = save_micro_model(folder / "model")
    second_device.install()
    status: dict[str, int | str] = {}
    first: list[str] = []
    for name, (command, settings) in commands(folder).items():
        if not names or name in names:
            where = {"pretrain": model, "save_path": folder / name}
            status[name] = call(command, where | settings)
            print("=====", name, status[name], flush=True)
            if name == "whole":
                first = (folder / name / "metrics.jsonl").read_text().splitlines()
                shutil.rmtree(folder / name / "checkpoints" / "step-000002")
                status["resumed"] = call(command, where | settings | {"resume": True})
    calls = sorted(set(second_device.DeviceModule.calls))
    seen = {"status": status, "strict": strict(), "calls": calls, "first": [json.loads(row) for row in first]}
    (folder / "found.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
