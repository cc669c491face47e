"""Kill a run with SIGKILL at random moments, resume it each time, and compare with a run that was left alone.

    uv run python tests/kill_and_resume.py --kills 10
    uv run python tests/kill_and_resume.py --kills 10 --script train_sft.py

Prints every kill and, at the end, whether the weights of all roles are equal bit for bit. The exit status is 0 only then.
`tests/trainer/test_resume.py` runs it with two kills, `tests/test_supervised_commands.py` with one.
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


PPO_FLAGS = "--num_episodes 12 --experience_batch_size 64 --train_batch_size 16 --eval_interval 4"
SUPERVISED_FLAGS = "--max_steps 60 --max_samples 200 --train_batch_size 8 --eval_interval 20"
SCRIPTS = {
    "train_rlvr.py": f"--reward_functions gsm8k_reward_fn {PPO_FLAGS}",
    "train_sft.py": SUPERVISED_FLAGS,
    "train_rm.py": SUPERVISED_FLAGS,
}


def command(folder: Path, extra: list[str]) -> list[str]:
    script, *flags = extra
    return [
        sys.executable, str(ROOT / "scripts" / script), "--save_path", str(folder), "--save_interval", "1",
        "--num_threads", "1", "--resume", *flags,
    ]  # fmt: skip


def wait_for_start(process: subprocess.Popen[str]) -> None:
    """Return when training begins (after imports and loading), or when the process has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(("going on from", "no checkpoint under")):
            return


def start(folder: Path, extra: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command(folder, extra), stdout=subprocess.PIPE, text=True)


def run_to_end(folder: Path, extra: list[str]) -> float:
    """Run without interruption; returns the seconds that training took."""
    process = start(folder, extra)
    wait_for_start(process)
    begin = time.monotonic()
    process.communicate()
    assert process.returncode == 0
    return time.monotonic() - begin


def run_with_kills(folder: Path, extra: list[str], kills: int, rows: int, row_s: float, rng: random.Random) -> bool:
    """Kill the run `kills` times at moments spread over the training, then let it end.

    A moment is a number of rows in metrics.jsonl and a random part of the time for a row, so that a machine that is
    faster than it was in the uninterrupted run does not end before it is killed.

    Returns whether all kills met a run that was still going.
    """
    for number in range(1, kills + 1):
        process = start(folder, extra)
        wait_for_start(process)
        row = int(0.8 * rows * (number - 1 + rng.random()) / kills)
        while rows_of(folder) < row and process.poll() is None:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, row_s))
        process.kill()
        process.communicate()
        newest = sorted(p.name for p in (folder / "checkpoints").glob("step-*"))[-1:]
        print(
            f"kill {number}/{kills} after {row} rows; newest checkpoint: {newest[0] if newest else 'none'}", flush=True
        )
        if process.returncode == 0:
            print("that run had ended by itself")
            return False
    process = start(folder, extra)
    process.communicate()
    return process.returncode == 0


def rows_of(folder: Path) -> int:
    """Rows of metrics so far."""
    path = folder / "metrics.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def weights(folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the saved roles."""
    files = sorted(folder.glob("*/modeling/*.safetensors"))
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
    parser.add_argument("--script", choices=SCRIPTS, default="train_rlvr.py", help="what is run")
    arguments, flags = parser.parse_known_args()
    extra = [arguments.script, *(flags or SCRIPTS[arguments.script].split())]
    shutil.rmtree(arguments.folder, ignore_errors=True)
    whole, broken = arguments.folder / "whole", arguments.folder / "broken"
    train_s = run_to_end(whole, extra)
    print(f"uninterrupted: {train_s:.1f} s of training", flush=True)
    rows = rows_of(whole)
    went_well = run_with_kills(broken, extra, arguments.kills, rows, train_s / rows, random.Random(arguments.seed))
    expected, actual = weights(whole), weights(broken)
    same = expected.keys() == actual.keys() and all(torch.equal(expected[n], actual[n]) for n in expected)
    same_metrics = metrics(whole) == metrics(broken)
    print(
        f"{len(expected)} tensors: {'equal bit for bit' if same else 'DIFFERENT'}; metrics: {'equal' if same_metrics else 'DIFFERENT'}"
    )
    return 0 if went_well and same and same_metrics else 1


if __name__ == "__main__":
    sys.exit(main())
