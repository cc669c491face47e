"""`read_problems`: problems from any mixture of sources.

A source is

- `builtin`, `builtin:train` or `builtin:test`: problems made from a seed;
- a `.jsonl`, `.json` or `.csv` file;
- a folder of such files;
- a name on the Hugging Face hub: `openai/gsm8k`, `owner/name@config:split`.

`rlvr/data/columns.py` says how question and answer are found in a row.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypeVar, cast

from rlvr.data.builtin import builtin_problems
from rlvr.data.columns import choose_columns, make_problem
from rlvr.data.hub import KNOWN, HubSet, load_hub_rows, parse_hub_name, suggest_hub_name
from rlvr.data.problem import Problem
from rlvr.data.rows import SUFFIXES, Row, find_files, missing_file, read_file
from rlvr.errors import UserError
from rlvr.suggest import did_you_mean, listed

T = TypeVar("T")

# How many built-in problems there are without a limit.
BUILTIN_SIZES = {"train": 20_000, "test": 2_000}


def read_problems(
    sources: Sequence[str],
    *,
    split: str | None = None,
    question_column: str | None = None,
    answer_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[Problem]:
    """Read and join the problems of all sources, in order.

    Args:
        sources: see the module's description.
        split: split to read where a source has several and names none itself (default `train`). Files have none.
        question_column: column with the question; by default the first of the usual names.
        answer_column: column with the right answer, likewise; `none` = there are no answers.
        limit: most problems; where there are more, a sample of all sources drawn with `seed`, in the order of the data.
        seed: of the built-in problems and of that sample.

    Returns:
        Problems with ids that are unique among them: a problem that comes twice gets `-2` after its id.

    Raises:
        UserError: a source that is not there, is empty or broken, lacks a column, or has a row of the wrong type.
    """
    if not sources:
        raise UserError("no data: give at least one of `builtin`, a JSONL or CSV file, a folder, or a hub name")
    if limit is not None and limit < 1:
        raise UserError(f"at most {limit} problems were asked for (--max_samples): must be at least 1")
    problems: list[Problem] = []
    for source in sources:
        if source == "builtin" or source.startswith("builtin:"):
            problems += _read_builtin(source, split, limit, seed)
            continue
        for where, rows, known in _read_tables(source, split):
            columns = choose_columns(
                rows[0],
                where,
                question_column or (known.question if known else None),
                answer_column or (known.answer if known else None),
            )
            problems += [make_problem(row, columns) for row in rows]
    return number_duplicates(draw_sample(problems, limit, seed))


def _read_builtin(source: str, split: str | None, limit: int | None, seed: int) -> list[Problem]:
    chosen = source.partition(":")[2] or split or "train"
    if chosen not in BUILTIN_SIZES:
        raise UserError(
            f"the built-in problems have no split {chosen!r}; give {listed(f'builtin:{s}' for s in BUILTIN_SIZES)}."
            f"{did_you_mean(chosen, BUILTIN_SIZES)}"
        )
    return builtin_problems(cast(Literal["train", "test"], chosen), limit or BUILTIN_SIZES[chosen], seed)


def read_rows(source: str, split: str | None = None) -> list[Row]:
    """All rows of a file, of the files of a folder, or of a set of the hub.

    Args:
        split: split to read where a source has several and names none itself. None = all files of a folder.

    Raises:
        UserError: as `read_problems`.
    """
    return [row for _, rows, _ in _read_tables(source, split) for row in rows]


def _read_tables(source: str, split: str | None) -> Iterator[tuple[str, list[Row], HubSet | None]]:
    """(name for messages, rows, what is known of the set) of each table of a source; the tables of a folder are its
    files, which may have different columns."""
    path = Path(source).expanduser()
    if path.exists():
        for file in find_files(path, split) if path.is_dir() else [path]:
            yield f"data file {file}", read_file(file), None
        return
    if source.startswith(("http://", "https://")):
        raise UserError(f"data source {source!r} is an address; download the file and give its path")
    if path.suffix.lower() in SUFFIXES or source.startswith((".", "/", "~")):
        raise missing_file(path)
    hub = parse_hub_name(source)
    if hub is None:
        raise UserError(
            f"data source {source!r} is neither a file nor a folder; give `builtin`, a path that ends in "
            f"{listed(SUFFIXES)}, a folder, or a hub name (owner/name@config:split)."
            f"{did_you_mean(source, ['builtin']) or suggest_hub_name(source)}"
        )
    yield f"data set {hub.name}", load_hub_rows(hub, split), KNOWN.get(hub.name)


def draw_sample(items: Sequence[T], limit: int | None, seed: int) -> list[T]:
    """At most `limit` of the items, drawn with `seed`, in their order."""
    if limit is None or len(items) <= limit:
        return list(items)
    draw = random.Random(f"sample of problems {seed}")
    keys = [draw.random() for _ in items]
    kept = sorted(range(len(items)), key=keys.__getitem__)[:limit]
    return [items[index] for index in sorted(kept)]


def number_duplicates(problems: list[Problem]) -> list[Problem]:
    """Ids that are unique: a problem that comes twice gets `-2` after its id."""
    seen: dict[str, int] = {}
    unique = []
    for problem in problems:
        count = seen[problem.id] = seen.get(problem.id, 0) + 1
        unique.append(problem if count == 1 else replace(problem, id=f"{problem.id}-{count}"))
    return unique
