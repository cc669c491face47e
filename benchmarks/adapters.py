"""Memory and time of PPO with all weights, with LoRA, and with a value head on the actor's trunk.

    OMP_NUM_THREADS=1 python -m benchmarks.adapters [--model smollm2-135m] [--variants full shared lora lora_shared] [flags]

The work: `rlvr train` in a process of its own for each variant, one after the other: 2 iterations of 8 responses of 32 tokens
to built-in problems, 2 optimizer steps each; further flags go to `rlvr train`. Prints the greatest resident memory of the
process, the median seconds of an iteration by phase, the processor seconds of the whole process (which on a busy machine mean
more), and the size of a checkpoint.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import processor

LORA = {"r": 16, "lora_alpha": 32, "target_modules": "all-linear"}
VARIANTS: dict[str, tuple[str, ...]] = {
    "full": (),
    "shared": ("--share_trunk", "--vf_coef", "0.1"),
    "lora": ("--lora_config", "{lora}"),
    "lora_shared": ("--lora_config", "{lora}", "--share_trunk", "--vf_coef", "0.1"),
}
WORK = (
    "--reward_functions gsm8k_reward_fn --num_episodes 2 --num_collect_steps 1 --num_update_steps 1 "
    "--experience_batch_size 8 --train_batch_size 4 --max_new_tokens 32 --max_length 160 --kl_coef 0.01 --eval_samples 1 "
    "--num_threads 1 --no_progress"
).split()
PHASES = ("rollout", "score", "update", "episode")


def run(flags: list[str], folder: Path) -> tuple[float, float]:
    """Train in a process of its own. Returns its greatest resident memory in GiB and its processor seconds."""
    command = [sys.executable, "-m", "rlvr", "train", *WORK, *flags, "--save_path", str(folder)]
    log = folder.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}\n{log.read_text()[-2000:]}")
    return usage.ru_maxrss / 2**20, usage.ru_utime + usage.ru_stime


def medians(folder: Path) -> dict[str, float]:
    """Seconds of each phase, the median over iterations; the first one warms up and is left out."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = [row for row in rows if "time/episode" in row][1:]
    return {name: statistics.median(row[f"time/{name}"] for row in timed) for name in PHASES}


def checkpoint_mib(folder: Path) -> float:
    """Size of the newest checkpoint."""
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    return sum(p.stat().st_size for p in newest.rglob("*") if p.is_file()) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    arguments, more = parser.parse_known_args()
    print(f"{arguments.model} on {processor()}, one thread; {' '.join(more)}", flush=True)
    heads = (*(f"{name} s" for name in PHASES), "CPU s", "peak GiB", "checkpoint MiB")
    print(f"{'':12}" + "".join(f"{head:>16}" for head in heads))
    with tempfile.TemporaryDirectory() as place:
        lora = Path(place) / "lora.json"
        lora.write_text(json.dumps(LORA))
        for name in arguments.variants:
            flags = [flag.format(lora=lora) for flag in VARIANTS[name]]
            folder = Path(place) / name
            memory, seconds = run(["--pretrain", arguments.model, *flags, *more], folder)
            found = [*medians(folder).values(), seconds, memory, checkpoint_mib(folder)]
            print(f"{name:12}" + "".join(f"{value:16.2f}" for value in found), flush=True)


if __name__ == "__main__":
    main()
