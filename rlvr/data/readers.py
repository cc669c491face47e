"""`read_problems`: problems from any mixture of sources; `read_prompt_csv`: from one CSV file, here or at an address.

A source is

- `builtin`, `arithmetic@1`, `word_problems:test` and so on: problems made from a seed (`rlvr/data/generated.py`);
- `reasoning_gym:chain_sum`: a task of reasoning-gym (`rlvr/data/procedural.py`);
- a file, a folder of files, or a name on the Hugging Face hub (`rlvr/data/rows.py`).

`rlvr/data/problems.py` says how question and answer are found in a row.
"""

import random
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rlvr.config import is_generated, is_procedural
from rlvr.data.generated import chosen_set, read_generated
from rlvr.data.problems import ANSWER_COLUMNS, NO_ANSWERS, Problem, choose_columns, make_problem
from rlvr.data.procedural import parse_source, read_procedural
from rlvr.data.rows import Row, locate, missing_file, read_file, read_tables
from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.config import DataConfig

T = TypeVar("T")

PROMPT_CSV_FLAG = "--prompt_csv_url"
MAX_BYTES = 1 << 30
"""Largest file that is fetched."""
TIMEOUT_S = 30.0
"""Longest that a server may be silent."""
CHUNK_BYTES = 1 << 20


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
        seed: of the generated problems and of that sample.

    Returns:
        Problems with ids that are unique among them: a problem that comes twice gets `-2` after its id.

    Raises:
        UserError: a source that is not there, is empty or broken, lacks a column, or has a row of the wrong type.
    """
    if not sources:
        raise UserError(
            "no data: give at least one of `builtin`, a JSONL, CSV or Parquet file, a folder, or a hub name"
        )
    if limit is not None and limit < 1:
        raise UserError(f"at most {limit} problems were asked for (--max_samples): must be at least 1")
    problems: list[Problem] = []
    for source in sources:
        if is_generated(source):
            read = read_procedural if is_procedural(source) else read_generated
            found = read(source, split, limit, seed)
        else:
            found = _read_tables(source, split, question_column, answer_column)
        problems += [replace(problem, dataset=source) for problem in found]
    return number_duplicates(draw_sample(problems, limit, seed))


def _read_tables(
    source: str, split: str | None, question_column: str | None, answer_column: str | None
) -> list[Problem]:
    """The problems of files or of a hub set."""
    problems: list[Problem] = []
    for where, rows, known in read_tables(source, split):
        columns = choose_columns(
            rows[0],
            where,
            question_column or (known.question if known else None),
            answer_column or (known.answer if known else None),
        )
        problems += [make_problem(row, columns) for row in rows]
    return problems


def read_training_problems(data: "DataConfig") -> list[Problem]:
    """The problems that a run trains on: of `--prompt_csv_url`, or of `--prompt_dataset`. Raises as they do."""
    if data.prompt_csv_url is None:
        return read_problems(
            data.prompt_dataset,
            split="train",
            question_column=data.question_column,
            answer_column=data.answer_column,
            limit=data.max_samples,
        )
    question = data.question_column or "prompt"
    return read_prompt_csv(
        data.prompt_csv_url, question_column=question, answer_column=data.answer_column, limit=data.max_samples
    )


def check_source(source: str) -> None:
    """Refuse a source that is neither generated here, nor a file or folder that is there, nor a name on the hub, which is not
    asked.

    Raises:
        UserError: says what there is.
    """
    if is_procedural(source):
        parse_source(source)
    elif is_generated(source):
        chosen_set(source)
    else:
        locate(source)


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


# Prompts from a CSV file that lies here or elsewhere: `--prompt_csv_url`.


def read_prompt_csv(
    source: str,
    *,
    question_column: str = "prompt",
    answer_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> list[Problem]:
    """The problems of a CSV file.

    Args:
        source: a path, or an http, https or file address.
        question_column: column with the prompts.
        answer_column: column with the right answers; by default the first of the usual names that is there, and none if
            there is none.
        limit: most problems, drawn with `seed`.

    Raises:
        UserError: it can't be read, is larger than `MAX_BYTES`, or has no such column (says which there are).
    """
    rows = _csv_rows(source)
    have = list(rows[0].values)
    if question_column not in have:
        raise UserError(
            f"{PROMPT_CSV_FLAG} {source}: there is no column {question_column!r}; the columns are {', '.join(have)}. Rename one, or name it: "
            "--question_column NAME"
        )
    if answer_column is None and not any(name in have for name in ANSWER_COLUMNS):
        answer_column = NO_ANSWERS
    columns = choose_columns(rows[0], f"{PROMPT_CSV_FLAG} {source}", question_column, answer_column)
    return number_duplicates(draw_sample([make_problem(row, columns) for row in rows], limit, seed))


def check_prompt_csv(source: str) -> None:
    """Refuse a path or address that can't be that of a CSV file. What lies here must be there; an address is not asked.

    Raises:
        UserError: says what is wrong.
    """
    if urlsplit(source).scheme in ("http", "https"):
        return
    path = _local_csv(source)
    if not path.is_file():
        raise UserError(f"{PROMPT_CSV_FLAG} {source}: {str(missing_file(path)).removeprefix(f'data file {path}: ')}")


def _csv_rows(source: str) -> list[Row]:
    if urlsplit(source).scheme in ("http", "https"):
        with tempfile.TemporaryDirectory(prefix="rlvr-prompts-") as folder:
            path = Path(folder) / "prompts.csv"
            _fetch(source, path)
            return _read_csv_file(path, source)
    return _read_csv_file(_local_csv(source), source)


def _local_csv(source: str) -> Path:
    parts = urlsplit(source)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise UserError(
                f"{PROMPT_CSV_FLAG} {source}: a file address names a file of this machine: file:///path/to/prompts.csv"
            )
        return Path(unquote(parts.path))
    if "://" in source:
        raise UserError(
            f"{PROMPT_CSV_FLAG} {source}: addresses begin with http://, https:// or file://, not {parts.scheme}://"
        )
    return Path(source).expanduser()


def _read_csv_file(path: Path, source: str) -> list[Row]:
    try:
        rows = read_file(path)
    except UserError as error:
        raise UserError(
            f"{PROMPT_CSV_FLAG} {source}: {str(error).replace(f'data file {path}: ', '').replace(str(path), 'row')}"
        ) from None
    if path.suffix.lower() != ".csv":
        raise UserError(f"{PROMPT_CSV_FLAG} {source}: the name must end in .csv; other data goes to --prompt_dataset")
    return rows


class _OnlyWebRedirects(HTTPRedirectHandler):
    """A server may send us on to another address, but not out of the web."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise URLError(f"it redirects to {newurl}, which is not on the web")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(url: str, path: Path) -> None:
    try:
        request = Request(url, headers={"User-Agent": "rlvr"})
        with closing(build_opener(_OnlyWebRedirects).open(request, timeout=TIMEOUT_S)) as answer:
            _save(answer, path, url)
    except HTTPError as error:
        raise UserError(
            f"{PROMPT_CSV_FLAG} {url}: the server says {error.code} {error.reason}; see that the address is right"
        ) from None
    except (OSError, ValueError) as error:  # URLError and time-outs are OSErrors
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"{PROMPT_CSV_FLAG} {url}: can't be fetched: {reason}; download the file and give its path"
        ) from None


class _Stream(Protocol):
    def read(self, size: int) -> bytes: ...


def _save(answer: _Stream, path: Path, url: str) -> None:
    size = 0
    with path.open("wb") as file:
        while chunk := answer.read(CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_BYTES:
                raise UserError(
                    f"{PROMPT_CSV_FLAG} {url}: larger than {MAX_BYTES >> 20} MiB, the most that is fetched; download the file and give its path"
                )
            file.write(chunk)
