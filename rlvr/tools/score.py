"""`rlvr score FILE --reward NAME`: what reward functions say of responses that lie in a file."""

import argparse
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from rewards import STATUSES, RewardFunction, RewardSet, Sample, Tags
from rewards.combine import Combined
from rlvr.data.columns import ANSWER_COLUMNS, QUESTION_COLUMNS, final_answer
from rlvr.data.rows import Row
from rlvr.errors import UserError
from rlvr.suggest import did_you_mean, listed
from rlvr.tools.parser import Parser
from rlvr.tools.rewards import add_reward_flags, resolve_rewards, scorer, tags_of
from rlvr.tools.table import read_table

GOLD_COLUMNS = ("gold", *(name for name in ANSWER_COLUMNS if name != "gold"))
CHUNK = 256
BROKEN_SHOWN = 20
SUMMARY_WIDTH = 120


@dataclass
class Tally:
    """What the summary says of one function.

    Attributes:
        total: sum of its scores.
        count: responses that it applied to.
        statuses: verdicts, and `scored` or `not applied` where it gave none.
        error: what it raised first.
    """

    total: float = 0.0
    count: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    error: str = ""


def score_command(argv: list[str]) -> None:
    """`rlvr score`: score a file, print a summary. Exits with 1 if lines were broken (the rest is scored).

    Raises:
        UserError: nothing can be read, a column or function that is not there, or a function that returned no score.
    """
    arguments = score_parser().parse_args(argv)
    functions = resolve_rewards(arguments.reward, arguments)
    rewards = RewardSet(functions, arguments.weights)
    rows, broken = read_table(Path(arguments.file).expanduser())
    columns = _Columns.choose(rows, arguments, functions)
    tags = tags_of(arguments.template)
    samples, places = [], []
    for row in rows:
        sample = _sample(row, columns, tags)
        if isinstance(sample, Sample):
            samples.append(sample)
            places.append(row.place)
        else:
            broken.append(f"{row.place}: {sample}")
    if not samples:
        raise UserError(f"nothing in {arguments.file} can be scored: {broken[0]}")
    tallies = {function.name: Tally() for function in functions}
    totals = Tally()
    with _output(arguments.output) as output:
        for place, result in zip(places, _scored(rewards, samples, arguments), strict=True):
            _count(result, tallies, totals)
            if output:
                output.write(json.dumps(_line(place, result)) + "\n")
    _print_summary(tallies, totals, len(samples))
    if broken:
        _print_broken(broken)
        raise SystemExit(1)


def score_parser() -> Parser:
    """The flags of the command."""
    parser = Parser(prog="rlvr score", description="Score the responses in a JSONL, CSV or Parquet file.")
    parser.add_argument("file", help="JSONL, JSON, CSV or Parquet")
    parser.add_argument("--reward", nargs="+", required=True, metavar="NAME", help="reward functions")
    parser.add_argument("--weights", nargs="+", type=float, metavar="W", help="one for each function (default: 1)")
    parser.add_argument("--response_column", default="response", metavar="NAME", help="column of the response")
    parser.add_argument(
        "--gold_column",
        metavar="NAME",
        help=f"column of the right answers; by default the first of {listed(GOLD_COLUMNS)}",
    )
    parser.add_argument("--output", metavar="FILE", help="JSONL file to write each response's scores to")
    add_reward_flags(parser)
    return parser


@dataclass(frozen=True)
class _Columns:
    response: str
    gold: str | None
    question: str | None

    @classmethod
    def choose(
        cls, rows: Sequence[Row], arguments: argparse.Namespace, functions: Sequence[RewardFunction]
    ) -> "_Columns":
        have = list(dict.fromkeys(name for row in rows for name in row.values))
        response = arguments.response_column
        if response not in have:
            raise UserError(
                f"{arguments.file}: no column {response!r}; the columns are {listed(have)}. Name it: --response_column NAME"
                f"{did_you_mean(response, have)}"
            )
        asked = arguments.gold_column.split(",") if arguments.gold_column else GOLD_COLUMNS
        gold = next((name for name in asked if name in have and name != response), None)
        needy = [f.name for f in functions if {"gold", "golds"} & set(f.parameters)]
        if gold is None and (needy or arguments.gold_column):
            raise UserError(
                f"{arguments.file}: no column with right answers{f', which {listed(needy)} needs' if needy else ''}; "
                f"looked for {listed(asked)}; the columns are {listed(have)}. Name it: --gold_column NAME"
            )
        question = next((name for name in QUESTION_COLUMNS if name in have and name not in (response, gold)), None)
        return cls(response, gold, question)


def _sample(row: Row, columns: _Columns, tags: Tags | None) -> Sample | str:
    """The sample that a row holds, or why it holds none."""
    values = row.values
    for name in (columns.response, columns.gold):
        if name is not None and name not in values:
            return f"no column {name!r}, which other rows have; its columns: {listed(values)}"
    response = values[columns.response]
    if not isinstance(response, str):
        return f"column {columns.response!r} must hold text, not {type(response).__name__}"
    gold = values[columns.gold] if columns.gold else None
    if isinstance(gold, bool) or not (gold is None or isinstance(gold, str | int | float)):
        return f"column {columns.gold!r} must hold the right answer as text or a number, not {type(gold).__name__}"
    prompt = values.get("prompt")
    question = values.get(columns.question) if columns.question else None
    ids, finished = values.get("response_ids"), values.get("finished", True)
    return Sample(
        response=response,
        gold=_gold_text(gold),
        prompt=prompt if isinstance(prompt, str) else "",
        question=question if isinstance(question, str) else None,
        tags=tags,
        response_ids=tuple(ids) if isinstance(ids, list) else (),
        finished=finished if isinstance(finished, bool) else True,
        columns={name: value for name, value in values.items() if name not in (columns.response, columns.gold)},
    )


def _gold_text(gold: str | int | float | None) -> str | None:
    """As training reads it: the end of a solution, and 42 for the 42.0 of a table."""
    if isinstance(gold, str):
        return final_answer(gold)
    if isinstance(gold, float) and math.isfinite(gold) and gold.is_integer():
        return str(int(gold))
    return None if gold is None else str(gold)


def _scored(rewards: RewardSet, samples: Sequence[Sample], arguments: argparse.Namespace) -> Iterator[Combined]:
    """Score in chunks, with a bar where a person looks on."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    progress = Progress(
        TextColumn("scoring"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress, scorer(rewards.functions, arguments.reward_plugins, arguments.workers) as score:
        task = progress.add_task("scoring", total=len(samples))
        for start in range(0, len(samples), CHUNK):
            chunk = samples[start : start + CHUNK]
            yield from rewards.combine(score(chunk))
            progress.advance(task, len(chunk))


@contextmanager
def _output(path: str | None) -> Iterator[TextIO | None]:
    if path is None:
        yield None
        return
    try:
        file = open(path, "w", encoding="utf-8")  # noqa: SIM115 - closed below; only the opening is the user's mistake
    except OSError as error:
        raise UserError(f"--output {path}: {error.strerror}") from None
    with file:
        yield file


def _line(place: str, result: Combined) -> dict[str, Any]:
    scores = {}
    for name, one in result.scores.items():
        scores[name] = {
            "score": one.value,
            "status": one.outcome.status if one.outcome else None,
            "answer": one.outcome.answer if one.outcome else None,
            "components": dict(one.components),
        }
    return {"place": place, "total": result.total, "scores": scores}


def _count(result: Combined, tallies: dict[str, Tally], totals: Tally) -> None:
    for name, one in result.scores.items():
        tally = tallies[name]
        unspoken = "not applied" if one.value is None else "scored"
        tally.statuses[one.outcome.status if one.outcome else unspoken] += 1
        if one.outcome and one.outcome.status == "error":
            tally.error = tally.error or one.outcome.message
        if one.value is not None:
            tally.total += one.value
            tally.count += 1
    if result.total is not None:
        totals.total += result.total
        totals.count += 1


def _print_summary(tallies: dict[str, Tally], totals: Tally, responses: int) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=SUMMARY_WIDTH)
    seen = [s for s in ("scored", *STATUSES, "not applied") if any(t.statuses[s] for t in tallies.values())]
    table = Table("function", "mean score", "of", *seen, title=f"{responses} responses")
    for name, tally in tallies.items():
        table.add_row(escape(name), _mean(tally), str(tally.count), *(str(tally.statuses[s]) for s in seen))
    if len(tallies) > 1:
        table.add_row("weighted sum", _mean(totals), str(totals.count))
    console.print(table)
    for name, tally in tallies.items():
        if tally.error:
            print(f"{name} raised, first: {ascii(tally.error)[1:-1]}", file=sys.stderr)


def _mean(tally: Tally) -> str:
    return f"{tally.total / tally.count:.4f}" if tally.count else "-"


def _print_broken(broken: Sequence[str]) -> None:
    print(f"{len(broken)} broken lines, not scored:", file=sys.stderr)
    for line in broken[:BROKEN_SHOWN]:
        print(f"  {ascii(line)[1:-1]}", file=sys.stderr)
    if len(broken) > BROKEN_SHOWN:
        print(f"  and {len(broken) - BROKEN_SHOWN} more", file=sys.stderr)
