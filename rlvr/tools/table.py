"""Rows of a file to be scored: JSONL, JSON, CSV or Parquet. Broken lines are named, and the rest is read.

Training refuses a file with a broken line (`rlvr.data.rows`). What is scored here comes from elsewhere, and a line that
was cut off should not hide the others.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlvr.data.rows import Row, missing_file, read_file
from rlvr.errors import UserError
from rlvr.suggest import listed

SUFFIXES = (".jsonl", ".json", ".csv", ".parquet")
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
    if suffix == ".csv":
        return _read_csv(path)
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


def _read_csv(path: Path) -> Iterator[Row | str]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        limit, line = csv.field_size_limit(MAX_CELL_CHARACTERS), 1
        try:
            reader = csv.reader(file, strict=True)
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
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise UserError(f"file to score {path}: Parquet files need pyarrow; install it, or write JSONL") from None
    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
            for values in batch.to_pylist():
                number += 1
                yield Row(values, f"{path}, row {number}")
    except pyarrow.ArrowException as error:
        yield f"{path}, after row {number}: not valid Parquet: {str(error).splitlines()[0]}"
