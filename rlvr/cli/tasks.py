"""`rlvr tasks MODEL DATASET...`: which data sets a model can learn from by rewards, before anything is trained.

Here are the flags and the printed table; `rlvr/evaluation/tasks.py` measures and judges.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from rlvr.cli.evaluate import add_evaluation_flags, check_evaluation_flags
from rlvr.cli.parser import Parser
from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.evaluation.tasks import Task

SECONDS = "seconds an episode"


def tasks_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(
        prog="rlvr tasks",
        description="What a model can learn from by rewards: pass@k, groups with signal and seconds an episode on data sets.",
    )
    parser.add_argument(
        "model", metavar="MODEL", help="tiny, smollm2-135m, the folder of a run or of a model, or a hub name"
    )
    parser.add_argument(
        "dataset", metavar="DATASET", nargs="+", help="as --prompt_dataset of training: word_problems@1"
    )
    add = parser.add_argument_group("training", "The run that is thought of.").add_argument
    add("--group_size", type=int, default=8, metavar="N", help="responses to a prompt (--num_generations of training)")
    add("--experience_batch_size", type=int, default=64, metavar="N", help="responses of an episode")
    add_evaluation_flags(parser, split="train", problems=32, num_generations=64, temperature=1.0)
    return parser


def tasks_command(argv: list[str]) -> None:
    """Sample, grade, and print a table and what follows for each data set.

    Raises:
        UserError: a model, data set, template or function that can't be used, or a value out of range.
    """
    a = tasks_parser().parse_args(argv)
    check_evaluation_flags(a)
    _check(a)
    from rlvr.evaluation.tasks import survey

    # With --json the result alone is on stdout.
    tasks = survey(a, partial(print, file=sys.stderr if a.json else sys.stdout, flush=True))
    if tasks is None:  # another process prints
        return
    if a.json:
        print(json.dumps({"model": a.model, "tasks": [asdict(task) for task in tasks]}, indent=2))
    else:
        _print(a, tasks)


def _check(a: argparse.Namespace) -> None:
    if a.temperature == 0:
        raise UserError("--temperature 0: groups of equal responses teach nothing; give that of training, such as 1")
    if a.experience_batch_size < 1:
        raise UserError(f"--experience_batch_size {a.experience_batch_size}: must be at least 1")
    if not 2 <= a.group_size <= a.num_generations:
        raise UserError(
            f"--group_size {a.group_size}: must lie between 2 and the --num_generations {a.num_generations} that are sampled"
        )


def _print(a: argparse.Namespace, tasks: Sequence["Task"]) -> None:
    from rich.table import Table

    from rlvr.tracking.terminal import Terminal

    console = Terminal(width=max(80, 26 + 20 * len(tasks)))
    table = Table(title=f"{a.model}: {tasks[0].problems} problems of each, {a.num_generations} responses to each")
    table.add_column("")
    for task in tasks:
        table.add_column(task.dataset, justify="right", overflow="fold")
    for name, cells in _rows(a, tasks):
        table.add_row(name, *cells)
    console.print(table)
    if a.save_path:
        print(f"saved: {a.save_path}")


def _rows(a: argparse.Namespace, tasks: Sequence["Task"]) -> list[tuple[str, list[str]]]:
    rows = [(f"pass@{k}", [_share(task.pass_at[k]) for task in tasks]) for k in tasks[0].pass_at]
    rows += [
        (f"groups of {a.group_size} with signal", [_share(task.signal) for task in tasks]),
        ("right, tags aside", [f"{task.right_anyway:.1%}" for task in tasks]),
        ("in format", [f"{task.in_format:.1%}" for task in tasks]),
        ("cut", [f"{task.truncated:.1%}" for task in tasks]),
        ("length, tokens", [f"{task.length_tokens:.1f}" for task in tasks]),
    ]
    for name in tasks[0].rewards:
        rows.append((f"mean {name}", [_score(task.rewards[name]) for task in tasks]))
    rows += [
        (f"{SECONDS}, sampling", [_seconds(task.sampling_s) for task in tasks]),
        (f"{SECONDS}, update", [_seconds(task.update_s) for task in tasks]),
    ]
    return rows


def _share(found: Sequence[float]) -> str:
    mean, low, high = found
    return f"{mean:.1%} ({low:.0%}-{high:.0%})"


def _score(mean: float | None) -> str:
    return "does not apply" if mean is None else f"{mean:.3f}"


def _seconds(value: Any) -> str:
    return "not measured" if value is None else f"{value:.1f}"
