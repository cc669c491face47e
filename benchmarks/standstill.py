"""Does anything move that should stand still? Training with a learning rate of 0 under every plugin and precision, and a table.

    uv run python -m benchmarks.standstill                                   # some minutes on 2 quiet cores
    uv run python -m benchmarks.standstill --only zero2 fsdp --episodes 5
    uv run python -m benchmarks.standstill --markdown benchmarks/results/standstill.md

Policy, sampler and reference are then one model, so the divergence must be 0, each ratio 1, nothing clipped, and the saved
weights those that the run began with: not nearly, but to the last bit. (In bf16, zero*, gemini and 3d begin with weights rounded to
bf16.) The ratios alone may be off by float32's rounding (`ROUNDING`): the new logprobs come from other batches than the old ones,
and products of other shapes may be summed in another order. The exit status is 1 if something moves.

The built-in model, two processes, two passes over each episode. `3d` (tp 2) needs transformers 4.51: docs/tensor_and_pipeline.md.
"""

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers.utils.logging import disable_progress_bar

from benchmarks.machine import processor

ROOT = Path(__file__).parents[1]
BOTH = ("fp32", "bf16")
PLUGINS = {
    "ddp": BOTH, "zero1": BOTH, "zero2": BOTH, "zero2_cpu": BOTH, "fsdp": BOTH, "gemini": ("bf16",), "3d": BOTH,
}  # fmt: skip
KEEP_FLOAT32 = ("ddp", "fsdp")
"""Plugins that keep the weights in float32 while they compute in bf16."""
ROUNDING = {"largest ratio - 1": 1e-5, "approxkl": 1e-10}
COLUMNS = (
    "plugin", "precision", "optimizer steps", "weights", "largest KL", "largest ratio - 1", "approxkl", "clip fraction",
)  # fmt: skip


def available(plugin: str) -> bool:
    return (plugin == "3d") == importlib.metadata.version("transformers").startswith("4.51.")


def run_all(plugins: list[str], episodes: int, folder: Path) -> None:
    """All runs, one after the other in one process group; called in every process of it."""
    from rlvr.api import train

    for plugin in plugins:
        for precision in PLUGINS[plugin]:
            train(
                pretrain="tiny",
                reward_functions=["gsm8k_reward_fn"],
                plugin=plugin,
                tp=2 if plugin == "3d" else 1,
                mixed_precision=precision,
                lr=0.0,
                critic_lr=0.0,
                num_episodes=episodes,
                num_update_steps=2,
                experience_batch_size=32,
                train_batch_size=16,
                max_new_tokens=24,
                eval_samples=8,
                num_sample_generations=0,
                progress=False,
                save_path=str(folder / f"{plugin}-{precision}"),
            )


def row_of(folder: Path, plugin: str, precision: str) -> list[str]:
    """What a run's files say."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "objective/kl" in row]
    steps = json.loads(next(folder.glob("checkpoints/*/state.json")).read_text())["state"]["progress"][
        "optimizer_steps"
    ]

    def most(name: str, less: float = 0.0) -> str:
        return f"{max(abs(row[name] - less) for row in rows):.3g}"

    return [
        plugin, precision, str(steps), "equal" if weights_are_equal(folder, plugin, precision) else "CHANGED", most("objective/kl"),
        max(most("train/max_ratio", 1.0), most("val/ratio", 1.0), key=float), most("policy/approxkl_avg"),
        most("policy/clipfrac_avg"),
    ]  # fmt: skip


def weights_are_equal(folder: Path, plugin: str, precision: str) -> bool:
    """True if the saved actor is the built-in model, as the run began with it."""
    from rlvr.models.loading import load_causal_lm

    begun = load_causal_lm("tiny").state_dict()
    if precision == "bf16" and plugin not in KEEP_FLOAT32:
        begun = {name: tensor.bfloat16() for name, tensor in begun.items()}
    saved = load_file(folder / "actor" / "modeling" / "model.safetensors")
    return bool(saved) and all(torch.equal(begun[name].float(), tensor.float()) for name, tensor in saved.items())


def stands_still(row: list[str]) -> bool:
    figures = dict(zip(COLUMNS[4:], map(float, row[4:]), strict=True))
    return row[3] == "equal" and all(value <= ROUNDING.get(name, 0.0) for name, value in figures.items())


def table(rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(COLUMNS), ["---"] * len(COLUMNS), *rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = [plugin for plugin in PLUGINS if available(plugin)]
    parser.add_argument("--only", nargs="+", choices=known, default=known, help="these plugins")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="file for the table")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.worker is not None:
        run_all(a.only, a.episodes, a.worker)
        return 0
    disable_progress_bar()
    with tempfile.TemporaryDirectory(prefix="standstill-") as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={a.processes}"]
        command += ["-m", "benchmarks.standstill", "--worker", folder, "--episodes", str(a.episodes), "--only", *a.only]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=True)
        cases = [(plugin, precision) for plugin in a.only for precision in PLUGINS[plugin]]
        rows = [row_of(Path(folder) / f"{plugin}-{precision}", plugin, precision) for plugin, precision in cases]
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers", "colossalai")
    )
    text = f"{a.episodes} episodes, {a.processes} processes; {processor()}, {versions}\n\n{table(rows)}\n"
    print(text)
    if a.markdown is not None:
        a.markdown.write_text(text)
    return int(not all(map(stands_still, rows)))


if __name__ == "__main__":
    sys.exit(main())
