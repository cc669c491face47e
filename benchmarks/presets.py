"""Every preset on the embedded default: trains each with seed 0, draws their curves, prints the table of docs/presets.md.

    uv run --with matplotlib python -m benchmarks.presets                 # all of them, one after the other; about 15 min
    uv run --with matplotlib python -m benchmarks.presets --only grpo gspo --out runs/presets
    uv run --with matplotlib python -m benchmarks.presets --out runs/presets --plot_only

A preset whose run under `--out` is finished is not run again. One thread each, so that nothing but the preset differs.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from rlvr.config.presets import PRESETS

ROOT = Path(__file__).parents[1]
COMMAND = [sys.executable, "-m", "rlvr", "train", "--reward_functions", "gsm8k_reward_fn", "--seed", "0"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PRESETS), default=list(PRESETS), help="these presets")
    parser.add_argument("--out", type=Path, default=Path("runs/presets"), help="folder of the runs")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "presets.png", help="file of the plot")
    parser.add_argument("--plot_only", action="store_true", help="run nothing; draw what is there")
    arguments = parser.parse_args()
    pyplot = import_pyplot()
    curves = {}
    for name in arguments.only:
        folder = arguments.out / name
        if not arguments.plot_only and not (folder / "actor" / "modeling").is_dir():
            train(name, folder)
        if (folder / "metrics.jsonl").is_file():
            curves[name] = read_curve(folder / "metrics.jsonl")
    if not curves:
        sys.exit(f"error: no finished run under {arguments.out}; leave --plot_only out")
    draw(pyplot, curves, arguments.plot)
    print(table(curves))
    print(f"drawn: {arguments.plot}")


def import_pyplot() -> Any:
    """matplotlib is no dependency of rlvr; say so before anything is run."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("error: drawing needs matplotlib: uv run --with matplotlib python -m benchmarks.presets")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def train(name: str, folder: Path) -> None:
    """One run, on one thread; goes on where an earlier one was stopped."""
    print(f"{name}: training in {folder}", flush=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.txt").open("w") as log:
        command = [*COMMAND, "--preset", name, "--save_path", str(folder), "--resume"]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"error: preset {name} failed; see {folder.parent / f'{name}.txt'}")


def read_curve(path: Path) -> dict[str, list[float]]:
    """Episodes, held-out accuracy where it was measured, and seconds of training so far."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    measured = [row for row in rows if "eval/accuracy" in row]
    return {
        "episodes": [row["step"] for row in measured],
        "accuracy": [100 * row["eval/accuracy"] for row in measured],
        "seconds": [row.get("time/total", 0.0) for row in measured],
        "sampled_episodes": [row["step"] for row in rows if "outcome/correct" in row],
        "sampled_correct": [100 * row["outcome/correct"] for row in rows if "outcome/correct" in row],
        "responses": [row.get("episode", 0) for row in measured],
    }


def draw(pyplot: Any, curves: dict[str, dict[str, list[float]]], path: Path) -> None:
    """Share of right responses in training, and held-out accuracy at the upper end of the scale."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for number, (name, curve) in enumerate(curves.items()):
        style: dict[str, Any] = {"color": f"C{number}", "label": name, "linewidth": 1.4}
        left.plot(curve["sampled_episodes"], curve["sampled_correct"], **style)
        right.plot(curve["episodes"], curve["accuracy"], marker="o", markersize=3, **style)
    left.set(xlabel="episode", ylabel="right responses, %", title="while training", ylim=(0, 101))
    right.set(xlabel="episode", ylabel="right answers, %", title="held-out problems", ylim=(75, 100))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    right.legend(ncols=2, loc="lower right", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def table(curves: dict[str, dict[str, list[float]]]) -> str:
    """Markdown: accuracy before and after, best, responses sampled and training time."""
    lines = ["| preset | before | after 10 episodes | after | responses | training |", "|---|---|---|---|---|---|"]
    for name, c in curves.items():
        ten = c["accuracy"][c["episodes"].index(10)] if 10 in c["episodes"] else float("nan")
        lines.append(
            f"| `{name}` | {c['accuracy'][0]:.1f} % | {ten:.1f} % | {c['accuracy'][-1]:.1f} % | "
            f"{c['responses'][-1]:,.0f} | {c['seconds'][-1]:.0f} s |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
