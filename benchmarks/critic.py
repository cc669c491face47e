"""Whether the critic pays: samples that PPO needs with a critic and without, on two tasks, over several seeds.

    uv run python -m benchmarks.critic --jobs 2                       # 30 runs of 6 episodes; an hour on two quiet cores
    uv run python -m benchmarks.critic --only gae drgrpo --seeds 0 1
    uv run python -m benchmarks.critic --report_only                  # run nothing; report what is there

Both tasks are the built-in model's: *default*, its problems as they come, and *five numbers*, only those sums of five numbers, of
which the warm-started model solves fewer. Every method has the same learning rate, held constant, the same Adam, and 4 optimizer
steps of 64 of each 256 responses, so what differs is where advantages come from:

    gae             a critic (lambda 1) that takes 4 steps in each of the actor's: the built-in model's default
    gae, 1 step     the same critic, one step in each of the actor's
    drgrpo          8 responses to a prompt, their mean: no critic

A run may be stopped at any time: what is finished is not run again. Held-out accuracy is measured after every episode, at
temperature 1. Prints a table of docs/critic.md and writes benchmarks/results/critic.json.
"""

import argparse
import contextlib
import json
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.presets import Curve, interval, is_finished
from benchmarks.sides.report import machine
from rlvr.data.builtin import Split, builtin_problems, numbers_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "critic.json"
SAME: dict[str, Any] = {
    "pretrain": "tiny",
    "reward_functions": ["gsm8k_reward_fn"],
    "experience_batch_size": 256,
    "num_collect_steps": 1,
    "train_batch_size": 64,
    "accumulation_steps": 1,
    "lr_schedule": "constant",
    "adam_beta2": 0.999,
    "eval_interval": 1,
    "eval_samples": 128,
    "save_interval": 0,
    "resume": True,
}
METHODS: dict[str, dict[str, Any]] = {
    "gae": {"critic_steps": 4},
    "drgrpo": {"preset": "drgrpo", "num_generations": 8},
    "gae, 1 step": {"critic_steps": 1},
}
TASKS = ("default", "five numbers")
POOLS: dict[Split, int] = {"train": 20_000, "test": 2_000}
"""Built-in problems of a split that the sums of five numbers are taken from."""

Key = tuple[str, str, int]
"""Task, method, seed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(METHODS), default=list(METHODS), help="these methods")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="these tasks")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4], help="these seeds (0 1 2 3 4)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (1), each on one thread")
    parser.add_argument("--episodes", type=int, default=6, help="episodes of each run (6)")
    parser.add_argument("--targets", nargs="+", type=float, default=[50.0, 80.0], help="accuracies in percent (50 80)")
    parser.add_argument("--out", type=Path, default=Path("runs/critic"), help="folder of the runs")
    parser.add_argument("--json", type=Path, default=RESULTS, help="file of the result")
    parser.add_argument("--report_only", action="store_true", help="run nothing; report what is there")
    given = parser.parse_args()
    # Seed by seed, so that a benchmark that is stopped has as many of each method.
    keys = [(task, method, seed) for seed in given.seeds for method in given.only for task in given.tasks]
    if not given.report_only:
        write_problems(given.out)
        train_all([key for key in keys if not is_finished(folder_of(given.out, key))], given)
    runs = {key: read(folder_of(given.out, key)) for key in keys if is_finished(folder_of(given.out, key))}
    if not runs:
        sys.exit(f"error: no finished run under {given.out}; leave --report_only out")
    text = table(runs, given.targets)
    print(text)
    rows = [{"task": task, "method": method, "seed": seed, **run} for (task, method, seed), run in runs.items()]
    given.json.write_text(json.dumps({"machine": machine(), "same": SAME, "methods": METHODS, "runs": rows}, indent=1))


def folder_of(out: Path, key: Key) -> Path:
    task, method, seed = (str(part).replace(", ", "-").replace(" ", "-") for part in key)
    return out / task / method / f"seed-{seed}"


def problems_of(out: Path, split: str) -> Path:
    return out / f"five-numbers-{split}.jsonl"


def write_problems(out: Path) -> None:
    """The built-in problems with five numbers, as files."""
    out.mkdir(parents=True, exist_ok=True)
    for split, count in POOLS.items():
        problems = builtin_problems(split, count)
        chosen = [p for p in problems if len(numbers_of(str(p.columns["expression"]))) == 5]
        lines = [json.dumps({"question": p.question, "answer": p.answer}) for p in chosen]
        problems_of(out, split).write_text("\n".join(lines) + "\n")


def train_all(keys: Sequence[Key], given: argparse.Namespace) -> None:
    """Train these, `--jobs` at a time."""
    print(f"{len(keys)} runs to do, {given.jobs} at a time", flush=True)
    # Spawned: a worker must not share a process group or threads with this process. One serves many runs.
    with ProcessPoolExecutor(given.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(train, settings_of(given.out, key, given.episodes)) for key in keys]
        for key, done in zip(keys, waiting, strict=True):
            done.result()
            print(*key, "done", flush=True)


def settings_of(out: Path, key: Key, episodes: int) -> dict[str, Any]:
    """A run's settings by their flags."""
    task, method, seed = key
    data = {}
    if task == "five numbers":
        data = {"prompt_dataset": [str(problems_of(out, "train"))], "eval_datasets": [str(problems_of(out, "test"))]}
    run = {"seed": seed, "num_episodes": episodes, "save_path": str(folder_of(out, key)), "progress": False}
    return {**SAME, **METHODS[method], **data, **run}


def train(settings: dict[str, Any]) -> None:
    """One run on one thread, in this process; its output goes into its folder."""
    import rlvr

    folder = Path(settings["save_path"])
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".txt").open("a", buffering=1) as log, contextlib.redirect_stdout(log):
        rlvr.train(**settings)


def read(folder: Path) -> dict[str, Any]:
    """Held-out accuracy in percent, after so many responses, and what the critic explained in each episode."""
    curve = Curve.read(folder / "metrics.jsonl")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = [row["critic/explained_variance"] for row in rows if "critic/explained_variance" in row]
    return {
        "responses": curve.responses,
        "accuracy": curve.accuracy,
        "explained_variance": [round(share, 4) for share in found],
    }


def table(runs: dict[Key, dict[str, Any]], targets: Sequence[float]) -> str:
    """Markdown: responses to each target, accuracy at the end and explained variance; mean and 95 % interval over seeds."""
    reached = " | ".join(f"responses to {target:g} %" for target in targets)
    lines = [
        f"| task | method | {reached} | accuracy after | explained variance, episodes 2 to 4, the rest | seeds |",
        "|---|---|" + "---|" * len(targets) + "---|---|---|",
    ]
    for task, method in dict.fromkeys(key[:2] for key in runs):
        found = [run for key, run in runs.items() if key[:2] == (task, method)]
        curves = [Curve(run["accuracy"], run["responses"], []) for run in found]
        cells = [interval([c.reached(t, c.responses) for c in curves], len(curves)) for t in targets]
        cells.append(interval([c.accuracy[-1] for c in curves], len(curves), " %", 1))
        cells.append(_explained([run["explained_variance"] for run in found]))
        lines.append(f"| {task} | `{method}` | {' | '.join(cells)} | {len(found)} |")
    return "\n".join(lines)


def _explained(runs: Sequence[Sequence[float]]) -> str:
    """Means over the seeds, early and late. In the first episode the critic has not learned yet."""
    if not all(runs):
        return ""
    return ", ".join(
        f"{fmean(share for run in runs for share in run[part]):.2f}" for part in (slice(1, 4), slice(4, None))
    )


if __name__ == "__main__":
    main()
