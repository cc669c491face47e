"""Is every step of a run computed again bit for bit? Each preset, LoRA, two processes, Ray and generation ahead, ten episodes of the embedded default.

    uv run python -m benchmarks.replay
    uv run python -m benchmarks.replay --only grpo lora --episodes 4
    uv run python -m benchmarks.replay --markdown benchmarks/results/replay.md

Trains each with `--journal`, then lets `rlvr replay --bisect` compute all of its steps again, from the run's start. Exits with 1 if one
is not the same. Runs that are finished are not trained again.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from benchmarks.machine import processor
from rlvr.config.presets import PRESETS
from rlvr.journal.journal import Journal

TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node=2", "--standalone"]
LORA = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj"]}
AHEAD = ["--ray", "--num_rollout_workers", "2", "--max_staleness", "1"]
COLUMNS = ("run", "steps", "the same", "bytes a token")


def variants(out: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Name -> what Python is started with before `-m rlvr`, and flags."""
    lora = out / "lora.json"
    lora.write_text(json.dumps(LORA))
    presets: dict[str, tuple[list[str], list[str]]] = {name: ([], ["--preset", name]) for name in PRESETS}
    return presets | {
        "lora": ([], ["--lora_config", str(lora)]),
        "zero2, bf16, 2 processes": (TORCHRUN, ["--plugin", "zero2", "--mixed_precision", "bf16"]),
        "fsdp, bf16, 2 processes": (TORCHRUN, ["--plugin", "fsdp", "--mixed_precision", "bf16"]),
        "ray": ([], ["--ray"]),
        "ray, 1 episode ahead": ([], AHEAD),
        "ray, 2 episodes ahead, partial rollouts": ([], [*AHEAD[:-1], "2", "--partial_rollout_tokens", "32"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="these rows")
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("runs/replay"), help="folder of the runs")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, (start, flags) in variants(given.out).items():
        if given.only is None or name in given.only:
            rows.append(row(name, start, flags, given.out / name.replace(", ", "-").replace(" ", "-"), given.episodes))
            print(" | ".join(rows[-1]), flush=True)
    text = table(rows)
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text)
    if any(steps != same for _, steps, same, _ in rows):
        sys.exit(1)


def row(name: str, start: list[str], flags: list[str], folder: Path, episodes: int) -> tuple[str, ...]:
    """One run, and how many of its steps are the same."""
    command = [sys.executable, *start, "-m", "rlvr"]
    log = folder.with_suffix(".log")
    # A preset may add episodes of its own (VAPO's, which fit the critic alone); the journal keeps those too.
    words = f"--reward_functions gsm8k_reward_fn --num_episodes {episodes} --journal {2 * episodes + 10} --eval_interval 0 --no_progress"
    with log.open("a") as file:
        if not (folder / "actor" / "modeling").is_dir():
            train = [
                *command,
                "train",
                *words.split(),
                *flags,
                "--save_path",
                str(folder),
                "--save_interval",
                "0",
                "--resume",
            ]
            subprocess.run(train, stdout=file, stderr=file, check=True)
        # Without its checkpoint all steps are computed, from the start.
        done = subprocess.run(
            [*command, "replay", str(folder), "--bisect", "--json"], stdout=subprocess.PIPE, stderr=file, text=True
        )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    same, steps = sum(step["same"] for step in found), len(Journal(folder).steps())
    return name, str(max(steps, episodes)), str(same), f"{Journal(folder).bytes_per_token():.1f}"


def table(rows: list[tuple[str, ...]]) -> str:
    """Markdown."""
    lines = [" | ".join(COLUMNS), "|".join(["---"] * len(COLUMNS)), *(" | ".join(row) for row in rows)]
    return "".join(f"| {line} |\n" for line in lines) + f"\nOn {processor()}.\n"


if __name__ == "__main__":
    main()
