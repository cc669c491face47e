"""`rlvr score FILE --reward NAME`: scores of the responses in a file (JSONL, CSV, Parquet), by the functions that are named.

A broken line does not end it: everything else is scored, and the broken lines are listed in the end. That is why this file reads
tables itself: `rlvr/data/rows.py` stops at the first mistake, as training should.
"""

import argparse
import csv
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
from rlvr.cli.parser import Parser
from rlvr.cli.rewards import add_reward_flags, open_scorer, resolve_rewards, template_tags
from rlvr.data.problems import ANSWER_COLUMNS, QUESTION_COLUMNS, final_answer
from rlvr.data.rows import SEPARATORS, SUFFIXES, Row, missing_file, read_file, read_parquet
from rlvr.errors import UserError, did_you_mean, escape_control_characters, listed

GOLD_COLUMNS = ("gold", *(name for name in ANSWER_COLUMNS if name != "gold"))
CHUNK = 256
"""Responses that are scored before the progress bar moves on."""
BROKEN_SHOWN = 20
SUMMARY_WIDTH = 120
"""Columns of the summary where it does not go to a terminal."""


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
    tags = template_tags(arguments.template)
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


@dataclass
class Tally:
    """One function's line in the summary.

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


def _scored(rewards: RewardSet, samples: Sequence[Sample], arguments: argparse.Namespace) -> Iterator[Combined]:
    """Score in chunks, with a progress bar on a terminal."""
    from rlvr.tracking.terminal import counting_bar

    with (
        counting_bar() as progress,
        open_scorer(rewards.functions, arguments.reward_plugins, arguments.workers) as score,
    ):
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
    from rich.markup import escape
    from rich.table import Table

    from rlvr.tracking.terminal import Terminal

    console = Terminal(plain_width=SUMMARY_WIDTH)
    seen = [s for s in ("scored", *STATUSES, "not applied") if any(t.statuses[s] for t in tallies.values())]
    table = Table("function", "mean score", "of", *seen, title=f"{responses} responses")
    for name, tally in tallies.items():
        table.add_row(escape(name), _mean(tally), str(tally.count), *(str(tally.statuses[s]) for s in seen))
    if len(tallies) > 1:
        table.add_row("weighted sum", _mean(totals), str(totals.count))
    console.print(table)
    for name, tally in tallies.items():
        if tally.error:
            print(f"{name} raised, first: {escape_control_characters(tally.error)}", file=sys.stderr)


def _mean(tally: Tally) -> str:
    return f"{tally.total / tally.count:.4f}" if tally.count else "-"


def _print_broken(broken: Sequence[str]) -> None:
    print(f"{len(broken)} broken lines, not scored:", file=sys.stderr)
    for line in broken[:BROKEN_SHOWN]:
        print(f"  {escape_control_characters(line.rstrip())}", file=sys.stderr)
    if len(broken) > BROKEN_SHOWN:
        print(f"  and {len(broken) - BROKEN_SHOWN} more", file=sys.stderr)


# From rows to samples.


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
    """The right answer as training reads it: the end of a solution, and 42 for the 42.0 of a table."""
    if isinstance(gold, str):
        return final_answer(gold)
    if isinstance(gold, float) and math.isfinite(gold) and gold.is_integer():
        return str(int(gold))
    return None if gold is None else str(gold)


# Reading files with broken lines.

MAX_CELL_CHARACTERS = 2**30
"""Of a CSV; the reader's own limit, 131,072, is less than a long response."""


def read_table(path: Path) -> tuple[list[Row], list[str]]:
    """The rows that can be read, and for each line that can't, its place and what is wrong with it.

    Raises:
        UserError: no such file, another kind of file, or nothing in it can be read.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(
            f"file to score {path}: the name must end in {listed(SUFFIXES)}, not {path.suffix or 'nothing'!r}"
        )
    if not path.is_file():
        raise missing_file(path)
    rows: list[Row] = []
    broken: list[str] = []
    try:
        for item in _reader(path, suffix):
            (rows if isinstance(item, Row) else broken).append(item)  # type: ignore[arg-type]
    except OSError as error:
        raise UserError(f"file to score {path}: {error.strerror or error}") from None
    if not rows:
        raise UserError(
            f"file to score {path}: nothing in it can be read: {broken[0] if broken else 'it holds no rows'}"
        )
    return rows, broken


def _reader(path: Path, suffix: str) -> Iterator[Row | str]:
    if suffix == ".parquet":
        return _read_parquet(path)
    if suffix in SEPARATORS:
        return _read_csv(path, SEPARATORS[suffix])
    if suffix == ".json" and _first_character(path) == b"[":
        return iter(read_file(path))  # one list of objects: broken anywhere, broken everywhere
    return _read_lines(path)


def _first_character(path: Path) -> bytes:
    with open(path, "rb") as file:
        return file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()[:1]


def _read_lines(path: Path) -> Iterator[Row | str]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            place = f"{path}:{number}"
            if line.strip(b" \t\r\n\xef\xbb\xbf"):
                values = _json_object(line)
                yield Row(values, place) if isinstance(values, dict) else f"{place}: {values}"


def _json_object(line: bytes) -> dict[str, Any] | str:
    """The object on a line, or why there is none."""
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return "not UTF-8 text"
    except json.JSONDecodeError as error:
        return f"not valid JSON: {error.msg} (column {error.colno})"
    except RecursionError:
        return "not usable JSON: nested too deeply"
    except ValueError as error:  # an integer of thousands of digits
        return f"not usable JSON: {error}"
    return value if isinstance(value, dict) else f"must be a JSON object of columns, not {type(value).__name__}"


def _read_csv(path: Path, separator: str) -> Iterator[Row | str]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        limit, line = csv.field_size_limit(MAX_CELL_CHARACTERS), 1
        try:
            reader = csv.reader(file, strict=True, delimiter=separator)
            header = next(reader, [])
            if len(set(header)) != len(header):
                raise UserError(f"{path}:1: the header names a column more than once ({listed(header)})")
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    yield _csv_row(header, cells, f"{path}:{line}")
                line = reader.line_num + 1
        except csv.Error as error:  # such as a quote that is never closed: where the next row begins is anyone's guess
            yield f"{path}:{line}: not valid CSV from here on: {error}"
        finally:
            csv.field_size_limit(limit)


def _csv_row(header: list[str], cells: list[str], place: str) -> Row | str:
    if len(cells) != len(header):
        return f"{place}: {len(cells)} cells where the header has {len(header)} ({listed(header)})"
    if any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
        return f"{place}: not UTF-8 text"
    return Row(dict(zip(header, cells, strict=True)), place)


def _read_parquet(path: Path) -> Iterator[Row | str]:
    try:
        yield from read_parquet(path)
    except UserError as error:
        yield str(error)
