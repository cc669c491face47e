"""Rows of JSONL and CSV files, each with its place (`file:line`) for messages.

A `.json` file holds either one object a line, as a `.jsonl` file does, or one list of objects.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.errors import UserError
from rlvr.suggest import did_you_mean, listed

SUFFIXES = (".jsonl", ".json", ".csv")


@dataclass(frozen=True)
class Row:
    """One row of a data set.

    Attributes:
        values: by column.
        place: `file:line` (or `file, item n`; `hub/name:split, row n`).
    """

    values: Mapping[str, Any]
    place: str


def read_file(path: Path) -> list[Row]:
    """The rows of a `.jsonl`, `.json` or `.csv` file.

    Raises:
        UserError: another kind of file, one that can't be read, holds no rows, or whose text is broken (file and line).
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"data file {path}: the name must end in {listed(SUFFIXES)}, not {path.suffix or 'nothing'!r}")
    reader = _read_csv if suffix == ".csv" else _read_json
    try:
        rows = list(reader(path))
    except UnicodeDecodeError:
        raise UserError(f"data file {path}: not UTF-8 text; save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"data file {path}: {error.strerror}") from None
    if not rows:
        raise UserError(f"data file {path}: holds no rows")
    return rows


def find_files(folder: Path, split: str | None = None) -> list[Path]:
    """The data files of a folder, by name. Where names tell splits apart (`train.jsonl`, `gsm8k_test.csv`), those of
    `split` only, so that training on a folder does not take in its test files.

    Raises:
        UserError: no data files, or none of the split though others name theirs.
    """
    files = sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    if not files:
        raise UserError(f"data folder {folder}: holds no file that ends in {listed(SUFFIXES)}")
    if split is None or not any(_split_words(p) for p in files):
        return files
    chosen = [p for p in files if split in _split_words(p)]
    if not chosen:
        names = listed(p.name for p in files)
        raise UserError(f"data folder {folder}: no file of the split {split!r} among {names}; name the file to read")
    return chosen


def _split_words(path: Path) -> set[str]:
    words = set(re.split(r"[^a-z]+", path.stem.lower()))
    return words & {"train", "test", "validation", "valid", "dev", "eval"}


def missing_file(path: Path) -> UserError:
    """What to say of a file that is not there, with the nearest name that is."""
    folder = path.parent
    names = [p.name for p in folder.iterdir()] if folder.is_dir() else []
    where = "" if folder.is_dir() else f" (there is no folder {folder} either)"
    return UserError(f"data file {path}: no such file{where}.{did_you_mean(path.name, names)}")


def _read_json(path: Path) -> Iterator[Row]:
    # utf-8-sig: some editors put a byte order mark first. Lines end at \n only: texts may hold other separators.
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        if path.suffix.lower() == ".json" and file.read(1) == "[":
            file.seek(0)
            yield from _read_json_list(path, file.read())
            return
        file.seek(0)
        for number, line in enumerate(file, start=1):
            if line.strip():
                place = f"{path}:{number}"
                yield Row(_object(_parse(line.rstrip("\r\n"), path, number), place), place)


def _read_json_list(path: Path, text: str) -> Iterator[Row]:
    for number, item in enumerate(_parse(text, path, 1), start=1):
        place = f"{path}, item {number}"
        yield Row(_object(item, place), place)


def _parse(text: str, path: Path, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(f"{path}:{line}: not valid JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise UserError(f"{path}:{first_line}: not usable JSON: nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise UserError(f"{path}:{first_line}: not usable JSON: {error}") from None


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{place}: each row must be a JSON object of columns, not {type(value).__name__}")
    return value


def _read_csv(path: Path) -> Iterator[Row]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        # strict: a quote that is never closed is an error, and does not swallow the rest of the file.
        reader = csv.reader(file, strict=True)
        line = 1
        try:
            header = next(reader, None)
            if header is None:
                return
            _check_header(header, path)
            line = reader.line_num + 1
            for cells in reader:
                if cells:
                    if len(cells) != len(header):
                        raise UserError(
                            f"{path}:{line}: {len(cells)} cells where the header has {len(header)} "
                            f"({listed(header)}); put texts with commas in quotes"
                        )
                    yield Row(dict(zip(header, cells, strict=True)), f"{path}:{line}")
                line = reader.line_num + 1
        except csv.Error as error:
            raise UserError(f"{path}:{line}: not valid CSV: {error}") from None


def _check_header(header: list[str], path: Path) -> None:
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise UserError(f"{path}:1: the header names {listed(map(repr, twice))} more than once")
