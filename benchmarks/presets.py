"""Every preset on the embedded default, over several seeds: trains them, prints the table of docs/presets.md, draws docs/presets.png.

    uv run --with matplotlib python -m benchmarks.presets --jobs 2                     # all, five seeds each; hours
    uv run --with matplotlib python -m benchmarks.presets --only grpo gspo --seeds 0 1
    uv run --with matplotlib python -m benchmarks.presets --report_only                # run nothing; report what is there

Each run is `rlvr train --preset NAME --seed N` in `OUT/NAME/seed-N`, on one thread, with held-out problems asked every other episode. It
may be stopped at any time: a finished run is not run again, and one that was stopped goes on; runs that were made with other
settings (of an older recipe, say) are refused. All seeds start from the built-in model of the cache, which is warmed up once; a seed decides
the order of problems, what is sampled, and a critic's head.

The seeds are few, so intervals are Student's: mean +- t(n - 1) s / sqrt(n), which covers the mean in 95 of 100 such benchmarks.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import yaml

from rlvr.config import parse, to_dict
from rlvr.config.presets import PRESETS

ROOT = Path(__file__).parents[1]
# 97.5 % points of Student's distribution, by degrees of freedom from 1.
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
# What two runs of one preset have in common; the other sections say where files lie and how they are watched.
COMPARED = ("model", "data", "template", "reward", "env", "rollout", "algo", "train", "parallel", "eval")


@dataclass(frozen=True)
class Curve:
    """Held-out accuracy of a run, in percent, after so many responses and seconds of training (without evaluations)."""

    accuracy: list[float]
    responses: list[float]
    seconds: list[float]

    @classmethod
    def read(cls, path: Path) -> "Curve":
        """The rows of a metrics.jsonl in which accuracy was measured."""
        rows = [row for row in map(json.loads, path.read_text().splitlines()) if "eval/accuracy" in row]
        return cls(
            accuracy=[100 * row["eval/accuracy"] for row in rows],
            responses=[row.get("episode", 0) for row in rows],
            seconds=[row.get("time/total", 0.0) for row in rows],
        )

    def reached(self, target: float, along: Sequence[float]) -> float | None:
        """Where on `along` (responses, seconds) accuracy first reaches the target, between two measurements on a straight line."""
        for number, now in enumerate(self.accuracy):
            if now >= target:
                if number == 0:
                    return along[0]
                before = self.accuracy[number - 1]
                share = (target - before) / (now - before)
                return along[number - 1] + share * (along[number] - along[number - 1])
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PRESETS), default=list(PRESETS), help="these presets")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], help="these seeds (0 1 2 3 4)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (1), each on one thread")
    parser.add_argument("--episodes", type=int, default=40, help="episodes of each run (40)")
    parser.add_argument("--target", type=float, default=90.0, help="accuracy in percent that runs are timed to (90)")
    parser.add_argument("--out", type=Path, default=Path("runs/presets"), help="folder of the runs")
    parser.add_argument("--plot", type=Path, default=ROOT / "docs" / "presets.png", help="file of the plot")
    parser.add_argument("--report_only", action="store_true", help="run nothing; report what is there")
    given = parser.parse_args()
    pyplot = import_pyplot()
    # Seed by seed, so that a benchmark that is stopped has as many of each preset.
    runs = [(name, seed) for seed in given.seeds for name in given.only]
    if not given.report_only:
        train_all(runs, given.out, given.episodes, given.jobs)
    curves = read_all(runs, given.out)
    if not curves:
        sys.exit(f"error: no finished run under {given.out}; leave --report_only out")
    print(table(curves, given.target))
    draw(pyplot, curves, given.plot)
    print(f"drawn: {given.plot}")


def import_pyplot() -> Any:
    """matplotlib is no dependency of rlvr; say so before anything is run."""
    try:
        import matplotlib
    except ImportError:
        sys.exit("error: drawing needs matplotlib: uv run --with matplotlib python -m benchmarks.presets")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def folder_of(out: Path, name: str, seed: int) -> Path:
    return out / name / f"seed-{seed}"


def is_finished(folder: Path) -> bool:
    """True if a run wrote its model, which it does last."""
    return (folder / "actor" / "modeling").is_dir()


def flags(name: str, seed: int, episodes: int) -> list[str]:
    text = (
        f"--reward_functions gsm8k_reward_fn --preset {name} --seed {seed} --num_episodes {episodes} --eval_interval 2"
    )
    return [*text.split(), "--no_progress"]


def train_all(runs: Sequence[tuple[str, int]], out: Path, episodes: int, jobs: int) -> None:
    """Train what is not finished, `jobs` at a time; a run that fails is told of at the end, with status 1."""
    for name, seed in runs:
        check_settings(name, seed, episodes, folder_of(out, name, seed))
    missing = [run for run in runs if not is_finished(folder_of(out, *run))]
    print(f"{len(runs) - len(missing)} runs are finished, {len(missing)} to do, {jobs} at a time", flush=True)
    with ThreadPoolExecutor(jobs) as pool:
        done = list(pool.map(lambda run: train(*run, episodes, folder_of(out, *run)), missing))
    failed = [f"{name} seed {seed}" for (name, seed), succeeded in zip(missing, done, strict=True) if not succeeded]
    if failed:
        sys.exit(f"error: failed: {', '.join(failed)}; see log.txt in their folders under {out}")


def check_settings(name: str, seed: int, episodes: int, folder: Path) -> None:
    """Exit if the folder holds a run with other settings than one that began now would have."""
    if not (folder / "config.yaml").is_file():
        return
    then, now = yaml.safe_load((folder / "config.yaml").read_text()), to_dict(parse(flags(name, seed, episodes)))
    for section in COMPARED:
        for key, value in now[section].items():
            if then.get(section, {}).get(key) != value:
                was = then.get(section, {}).get(key)
                sys.exit(
                    f"error: {folder} was made with {key} {was}, and now it is {value}: delete it, or give another --out"
                )


def train(name: str, seed: int, episodes: int, folder: Path) -> bool:
    """One run, on one thread; goes on where an earlier one was stopped. True if it finished."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rlvr", "train", *flags(name, seed, episodes)]
    with (folder / "log.txt").open("a") as log:
        done = subprocess.run(
            [*command, "--save_path", str(folder), "--resume"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    print(f"{name} seed {seed}: {'failed' if done.returncode else 'done'}", flush=True)
    return done.returncode == 0


def read_all(runs: Sequence[tuple[str, int]], out: Path) -> dict[str, list[Curve]]:
    """The finished runs' curves by preset."""
    curves: dict[str, list[Curve]] = {}
    for name, seed in runs:
        folder = folder_of(out, name, seed)
        if is_finished(folder):
            curves.setdefault(name, []).append(Curve.read(folder / "metrics.jsonl"))
    return curves


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval: t(n - 1) s / sqrt(n); infinite for one value.

    Raises:
        ValueError: no values, or more than the table has.
    """
    if not 1 <= len(values) <= len(T_975) + 1:
        raise ValueError(f"1 to {len(T_975) + 1} values, not {len(values)}")
    if len(values) == 1:
        return values[0], math.inf
    return fmean(values), T_975[len(values) - 2] * stdev(values) / math.sqrt(len(values))


def table(curves: dict[str, list[Curve]], target: float) -> str:
    """Markdown: accuracy at the end, responses and seconds to the target, responses and seconds in all; means over seeds."""
    lines = [
        f"| preset | accuracy after | responses to {target:g} % | seconds to {target:g} % | responses | seconds | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, runs in curves.items():
        cells = [
            interval([run.accuracy[-1] for run in runs], len(runs), " %", 1),
            interval([run.reached(target, run.responses) for run in runs], len(runs)),
            interval([run.reached(target, run.seconds) for run in runs], len(runs)),
            f"{fmean(run.responses[-1] for run in runs):,.0f}",
            f"{fmean(run.seconds[-1] for run in runs):,.0f}",
            str(len(runs)),
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def interval(values: Sequence[float | None], runs: int, unit: str = "", digits: int = 0) -> str:
    """The mean of those that are there with half its interval, and how many they are if not all."""
    found = [value for value in values if value is not None]
    if not found:
        return "never"
    mean, half = t_interval(found)
    spread = f" ± {half:,.{digits}f}" if math.isfinite(half) else ""
    return f"{mean:,.{digits}f}{spread}{unit}" + (f" ({len(found)} of {runs})" if len(found) < runs else "")


def draw(pyplot: Any, curves: dict[str, list[Curve]], path: Path) -> None:
    """Left: mean accuracy over the responses sampled. Right: accuracy at the end, each seed and the mean with its interval."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors
    for row, (name, runs) in enumerate(curves.items()):
        colour = colours[row % len(colours)]
        points = range(min(len(run.accuracy) for run in runs))
        accuracy, responses = (
            [fmean(getattr(run, what)[point] for run in runs) for point in points] for what in ("accuracy", "responses")
        )
        left.plot(responses, accuracy, color=colour, label=name, linewidth=1.4)
        mean, half = t_interval([run.accuracy[-1] for run in runs])
        right.plot([run.accuracy[-1] for run in runs], [row] * len(runs), "|", color=colour)
        right.errorbar(mean, row, xerr=half if math.isfinite(half) else 0, fmt="o", color=colour, capsize=3)
    left.set(xlabel="responses sampled", ylabel="right answers, %", title="held-out problems, mean over seeds")
    right.set(xlabel="right answers, %", title="at the end: seeds, mean, 95 % interval", yticks=range(len(curves)))
    right.set_yticklabels(list(curves))
    right.invert_yaxis()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.legend(ncols=2, loc="lower right", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
