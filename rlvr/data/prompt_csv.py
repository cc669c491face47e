"""Prompts from a CSV file that lies here or elsewhere: `--prompt_csv_url`."""

import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from rlvr.data.columns import ANSWER_COLUMNS, NO_ANSWERS, choose_columns, make_problem
from rlvr.data.problem import Problem
from rlvr.data.readers import draw_sample, number_duplicates
from rlvr.data.rows import Row, read_file
from rlvr.errors import UserError

FLAG = "--prompt_csv_url"
MAX_BYTES = 1 << 30
"""Largest file that is fetched."""
TIMEOUT_S = 30.0
"""Longest that a server may be silent."""
CHUNK_BYTES = 1 << 20


class _Stream(Protocol):
    def read(self, size: int) -> bytes: ...


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
    rows = _rows(source)
    have = list(rows[0].values)
    if question_column not in have:
        raise UserError(
            f"{FLAG} {source}: there is no column {question_column!r}; the columns are {', '.join(have)}. Rename one, or name it: "
            "--question_column NAME"
        )
    if answer_column is None and not any(name in have for name in ANSWER_COLUMNS):
        answer_column = NO_ANSWERS
    columns = choose_columns(rows[0], f"{FLAG} {source}", question_column, answer_column)
    return number_duplicates(draw_sample([make_problem(row, columns) for row in rows], limit, seed))


def _rows(source: str) -> list[Row]:
    parts = urlsplit(source)
    if parts.scheme in ("http", "https"):
        with tempfile.TemporaryDirectory(prefix="rlvr-prompts-") as folder:
            path = Path(folder) / "prompts.csv"
            _fetch(source, path)
            return _read(path, source)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise UserError(
                f"{FLAG} {source}: a file address names a file of this machine: file:///path/to/prompts.csv"
            )
        return _read(Path(unquote(parts.path)), source)
    if "://" in source:
        raise UserError(f"{FLAG} {source}: addresses begin with http://, https:// or file://, not {parts.scheme}://")
    return _read(Path(source).expanduser(), source)


def _read(path: Path, source: str) -> list[Row]:
    try:
        rows = read_file(path)
    except UserError as error:
        raise UserError(
            f"{FLAG} {source}: {str(error).replace(f'data file {path}: ', '').replace(str(path), 'row')}"
        ) from None
    if path.suffix.lower() != ".csv":
        raise UserError(f"{FLAG} {source}: the name must end in .csv; other data goes to --prompt_dataset")
    return rows


class _StayOnWeb(HTTPRedirectHandler):
    """A server may send us on to another address, but not out of the web."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise URLError(f"it redirects to {newurl}, which is not on the web")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(url: str, path: Path) -> None:
    try:
        request = Request(url, headers={"User-Agent": "rlvr"})
        with closing(build_opener(_StayOnWeb).open(request, timeout=TIMEOUT_S)) as answer:
            _save(answer, path, url)
    except HTTPError as error:
        raise UserError(
            f"{FLAG} {url}: the server says {error.code} {error.reason}; see that the address is right"
        ) from None
    except (OSError, ValueError) as error:  # URLError and time-outs are OSErrors
        reason = getattr(error, "reason", None) or error
        raise UserError(f"{FLAG} {url}: can't be fetched: {reason}; download the file and give its path") from None


def _save(answer: _Stream, path: Path, url: str) -> None:
    size = 0
    with path.open("wb") as file:
        while chunk := answer.read(CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_BYTES:
                raise UserError(
                    f"{FLAG} {url}: larger than {MAX_BYTES >> 20} MiB, the most that is fetched; download the file and give its path"
                )
            file.write(chunk)
