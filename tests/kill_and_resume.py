"""Kill a run with SIGKILL at random moments, resume it each time, and compare with a run that was left alone.

    uv run python tests/kill_and_resume.py --kills 10

Prints every kill and, at the end, whether the weights of actor and critic are equal bit for bit. The exit status is 0
only then. `tests/trainer/test_resume.py` runs it with two kills.
"""

import argparse
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from safetensors.torch import load_file

ROOT = Path(__file__).parents[1]


def command(folder: Path, extra: list[str]) -> list[str]:
    return [
        sys.executable, str(ROOT / "scripts" / "train_rlvr.py"), "--reward_functions", "gsm8k_reward_fn",
        "--save_path", str(folder), "--save_interval", "1", "--num_threads", "1", "--resume", *extra,
    ]  # fmt: skip


def run_to_end(folder: Path, extra: list[str]) -> float:
    """Run without interruption; returns the seconds it took."""
    start = time.monotonic()
    subprocess.run(command(folder, extra), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - start


def run_with_kills(folder: Path, extra: list[str], kills: int, duration_s: float, rng: random.Random) -> None:
    """Kill the run `kills` times, each time a random while after its start-up, then let it end."""
    done = 0
    while done < kills:
        process = subprocess.Popen(command(folder, extra), stdout=subprocess.DEVNULL)
        wait_s = rng.uniform(0.2, 1.0) * duration_s
        try:
            process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            done += 1
            newest = sorted(p.name for p in (folder / "checkpoints").glob("step-*"))[-1:]
            print(
                f"kill {done}/{kills} after {wait_s:.1f} s; newest checkpoint: {newest[0] if newest else 'none'}",
                flush=True,
            )
            continue
        print(f"the run ended before kill {done + 1}: starting it over")
        shutil.rmtree(folder)
    subprocess.run(command(folder, extra), check=True, stdout=subprocess.DEVNULL)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the saved actor and critic."""
    files = sorted(folder.glob("actor/modeling/*.safetensors")) + sorted(folder.glob("critic/modeling/*.safetensors"))
    assert files, f"nothing saved under {folder}"
    return {f"{f.parent.parent.name}/{f.name}/{n}": t for f in files for n, t in load_file(f).items()}


def metrics(folder: Path) -> list[str]:
    """The rows of metrics.jsonl without what depends on the clock."""
    import json

    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [json.dumps({k: v for k, v in row.items() if not k.startswith("time/")}, sort_keys=True) for row in rows]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, default=Path("runs/kill_and_resume"))
    arguments, extra = parser.parse_known_args()
    extra = extra or [
        "--num_episodes",
        "12",
        "--experience_batch_size",
        "64",
        "--train_batch_size",
        "16",
        "--eval_interval",
        "4",
    ]
    shutil.rmtree(arguments.folder, ignore_errors=True)
    whole, broken = arguments.folder / "whole", arguments.folder / "broken"
    duration_s = run_to_end(whole, extra)
    print(f"uninterrupted: {duration_s:.1f} s", flush=True)
    run_with_kills(broken, extra, arguments.kills, duration_s, random.Random(arguments.seed))
    expected, actual = weights(whole), weights(broken)
    same = expected.keys() == actual.keys() and all(torch.equal(expected[n], actual[n]) for n in expected)
    same_metrics = metrics(whole) == metrics(broken)
    print(
        f"{len(expected)} tensors: {'equal bit for bit' if same else 'DIFFERENT'}; metrics: {'equal' if same_metrics else 'DIFFERENT'}"
    )
    return 0 if same and same_metrics else 1


if __name__ == "__main__":
    sys.exit(main())
