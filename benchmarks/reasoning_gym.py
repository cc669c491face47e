"""An episode of training on every task of reasoning-gym, and whether each task pays its own answers.

    uv sync --group tasks && uv run python -m benchmarks.reasoning_gym --markdown benchmarks/results/reasoning_gym.md

The built-in model, without its warm start, answers 8 problems of each task; what it learns is nothing, that the whole way works is all
that is shown. A task whose prompts are longer than the model's context says so. Exits with 1 if an episode fails.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

from rewards.procedural import task_names
from rlvr.errors import UserError

COLUMNS = ("task", "entries that pay their own answer", "seconds to make and check them", "mean reward", "episode")
ENTRIES = 8
SETTINGS: dict[str, Any] = {
    "algo": {"kl_coef": 0.0},
    "model": {"pretrain": "tiny"},
    "rollout": {"experience_batch_size": 8, "max_new_tokens": 16, "max_length": 8192},
    "train": {"num_episodes": 1, "train_batch_size": 8, "num_threads": 1},
    "reward": {"reward_functions": ["reasoning_gym_reward_fn"]},
    "eval": {"eval_samples": 2},
    "log": {"progress": False},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="these tasks")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in given.only or task_names():
        rows.append(row(name))
        print(" | ".join(rows[-1]), flush=True)
    failed = [cells[0] for cells in rows if not cells[-1].startswith("trained")]
    text = table(rows, failed)
    print(text)
    if given.markdown is not None:
        given.markdown.write_text(text)
    return int(bool(failed))


def row(name: str) -> tuple[str, ...]:
    """Read some problems of the task, and train on them."""
    from rlvr.data.procedural import parse_source, read_procedural

    source = f"reasoning_gym:{name}?size={ENTRIES}"
    if name == "composite":
        return name, "-", "-", "-", "trained with the others: it is a mixture, which sources side by side are, too"
    began = time.perf_counter()
    try:
        problems = read_procedural(source, "train", None, 0)
    except UserError as error:
        return name, "0", "-", "-", str(error)
    seconds = time.perf_counter() - began
    made = parse_source(source)[0]
    answers = [made.entry(problem.columns["procedural"]["index"])["answer"] for problem in problems]
    own = f"{len(problems)} of {len(problems)}" if None not in answers else "names none"
    reward, said = _episode(source)
    return name, own, f"{seconds:.1f}", reward, said


def _episode(source: str) -> tuple[str, str]:
    """Mean reward of an episode, and what came of it."""
    import rlvr
    from rlvr.config import base_config, overlay

    with tempfile.TemporaryDirectory(prefix="rlvr") as folder:
        of_task = {"data": {"prompt_dataset": [source]}, "ckpt": {"save_path": f"{folder}/run"}}
        try:
            done = rlvr.train(base_config(overlay(SETTINGS, of_task)))
        except UserError as error:
            return "-", str(error)
        last = json.loads((Path(done) / "metrics.jsonl").read_text().splitlines()[-1])
    return f"{last['objective/scores']:.2f}", f"trained, {last['outcome/error']:.0%} errors"


def table(rows: list[tuple[str, ...]], failed: list[str]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    trained = len(rows) - len(failed)
    return "\n".join(["# reasoning_gym", "", f"{trained} of {len(rows)} tasks trained an episode.", "", *lines, ""])


if __name__ == "__main__":
    sys.exit(main())
