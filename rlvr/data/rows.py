"""Rows of data sets: read from files, folders, or sets of the Hugging Face hub.

A source is a `.jsonl`, `.json`, `.csv`, `.tsv` or `.parquet` file, a folder of such files, or a name on the hub (`openai/gsm8k`,
`owner/name@config:split#revision`). A `.json` file holds either one object a line, as a `.jsonl` file does, or one list of objects.
Every row knows its place (`file:line`), which messages name.

Left out on purpose: addresses (`readers.read_prompt_csv` fetches those), and code that
comes with a data set (`trust_remote_code` stays off).
"""

import csv
import inspect
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.config import GENERATED
from rlvr.config.files import parse_json, require_file
from rlvr.config.hub_names import split_revision
from rlvr.errors import UserError, did_you_mean, listed

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Row:
    """One row of a data set.

    Attributes:
        values: by column.
        place: `file:line` (or `file, item n`; `hub/name:split, row n`).
    """

    values: Mapping[str, Any]
    place: str


def read_rows(source: str, split: str | None = None) -> list[Row]:
    """All rows of a file, of the files of a folder, or of a set of the hub.

    Args:
        split: split to read where a source has several and names none itself. None = all files of a folder.

    Raises:
        UserError: a source that is not there, is empty or broken.
    """
    return [row for _, rows, _ in read_tables(source, split) for row in rows]


def read_tables(source: str, split: str | None) -> Iterator[tuple[str, list[Row], "HubSet | None"]]:
    """Each table of a source as (name for messages, rows, the set's entry in `KNOWN_SETS`). The tables of a folder are its
    files, which may have different columns."""
    found = locate(source)
    if isinstance(found, Path):
        for file in find_files(found, split) if found.is_dir() else [found]:
            yield f"data file {file}", read_file(file), None
        return
    yield f"data set {found.name}", load_hub_rows(found, split), KNOWN_SETS.get(found.name)


def locate(source: str) -> "Path | HubName":
    """The file or folder that a source names, which is there; or its name on the hub, which is not asked.

    Raises:
        UserError: it is neither.
    """
    path = Path(source).expanduser()
    if path.exists():
        return path
    split_revision(source)  # one of what lies here is told as such
    if source.startswith(("http://", "https://")):
        raise UserError(f"data source {source!r} is an address; download the file and give its path")
    if path.suffix.lower() in SUFFIXES or source.startswith((".", "/", "~")):
        raise missing_file(path)
    hub = parse_hub_name(source)
    if hub is None:
        raise UserError(
            f"data source {source!r} is neither a file nor a folder; give {listed(GENERATED)}, a path that ends in "
            f"{listed(SUFFIXES)}, a folder, or a hub name (owner/name@config:split#revision)."
            f"{did_you_mean(source, GENERATED) or suggest_hub_name(source)}"
        )
    return hub


# Files and folders.


def read_file(path: Path) -> list[Row]:
    """The rows of a file whose name ends in one of `SUFFIXES`.

    Raises:
        UserError: another kind of file, one that can't be read, holds no rows, or whose text is broken (file and line).
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise UserError(f"data file {path}: the name must end in {listed(SUFFIXES)}, not {path.suffix or 'nothing'!r}")
    reader = read_parquet if suffix == ".parquet" else _read_csv if suffix in SEPARATORS else _read_json
    try:
        require_file(path)
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
    """The error for a file that is not there, with the nearest name that is."""
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
        return parse_json(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise UserError(f"{path}:{line}: not valid JSON: {error.msg} (column {error.colno})") from None
    except ValueError as error:  # an integer of thousands of digits
        raise UserError(f"{path}:{first_line}: not usable JSON: {error}") from None


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{place}: each row must be a JSON object of columns, not {type(value).__name__}")
    return value


def _read_csv(path: Path) -> Iterator[Row]:
    separator = SEPARATORS[path.suffix.lower()]
    with open(path, encoding="utf-8-sig", newline="") as file:
        # strict: a quote that is never closed is an error, and does not swallow the rest of the file.
        reader = csv.reader(file, strict=True, delimiter=separator)
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
                            f"({listed(header)}); put texts with {'commas' if separator == ',' else 'tabs'} in quotes"
                        )
                    yield Row(dict(zip(header, cells, strict=True)), f"{path}:{line}")
                line = reader.line_num + 1
        except csv.Error as error:
            raise UserError(f"{path}:{line}: not valid CSV: {error}") from None


def read_parquet(path: Path) -> Iterator[Row]:
    """The rows of a Parquet file.

    Raises:
        UserError: it is not valid; says after how many rows.
    """
    import pyarrow  # type: ignore[import-untyped]
    import pyarrow.parquet  # type: ignore[import-untyped]

    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
            for values in batch.to_pylist():
                number += 1
                yield Row(values, f"{path}, row {number}")
    except pyarrow.ArrowException as error:
        raise UserError(f"{path}, after row {number}: not valid Parquet: {str(error).splitlines()[0]}") from None


def _check_header(header: list[str], path: Path) -> None:
    if twice := sorted(name for name, count in Counter(header).items() if count > 1):
        raise UserError(f"{path}:1: the header names {listed(map(repr, twice))} more than once")


# Sets of the Hugging Face hub.

_HUB_NAME = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<config>[^:@/#]+))?(:(?P<split>[^#]+))?(#(?P<revision>[^#]+))?")


@dataclass(frozen=True)
class HubSet:
    """A set that needs no flags: its configuration, its splits, and where question and answer stand."""

    config: str | None
    splits: tuple[str, ...]
    question: str
    answer: str


KNOWN_SETS = {
    "openai/gsm8k": HubSet("main", ("train", "test"), "question", "answer"),
    "ChilleD/SVAMP": HubSet(None, ("train", "test"), "question_concat", "Answer"),
    "DigitalLearningGmbH/MATH-lighteval": HubSet("default", ("train", "test"), "problem", "solution"),
    "HuggingFaceH4/MATH-500": HubSet(None, ("test",), "problem", "answer"),
    "HuggingFaceH4/aime_2024": HubSet(None, ("train",), "problem", "answer"),
    "AI-MO/aimo-validation-aime": HubSet(None, ("train",), "problem", "answer"),
    "AI-MO/aimo-validation-amc": HubSet(None, ("train",), "problem", "answer"),
    "agentica-org/DeepScaleR-Preview-Dataset": HubSet(None, ("train",), "problem", "answer"),
}


@dataclass(frozen=True)
class HubName:
    """A hub source, taken apart."""

    name: str
    config: str | None
    split: str | None
    revision: str | None = None


def parse_hub_name(source: str) -> HubName | None:
    """`owner/name@config:split#revision` taken apart; None if `source` is no such thing."""
    match = _HUB_NAME.fullmatch(source)
    return HubName(match["name"], match["config"], match["split"], match["revision"]) if match else None


def suggest_hub_name(source: str) -> str:
    """` Did you mean …` for a bare name such as `gsm8k`; "" where no known set is near."""
    by_short_name = {name.split("/")[1].lower(): name for name in KNOWN_SETS}
    if source.lower() in by_short_name:
        return f" Did you mean {by_short_name[source.lower()]!r}?"
    return did_you_mean(source, KNOWN_SETS)


def load_hub_rows(hub: HubName, split: str | None) -> list[Row]:
    """Download (or take from the cache) one split.

    A split in the source's own name is taken as it is. `split` is a wish: where the set has no such split but a single
    other one, that is taken.

    Raises:
        UserError: the set can't be loaded or has no such split.
    """
    import datasets

    known = KNOWN_SETS.get(hub.name)
    config = hub.config or (known.config if known else None)
    arguments: dict[str, Any] = {} if hub.revision is None else {"revision": hub.revision}
    if "trust_remote_code" in inspect.signature(datasets.load_dataset).parameters:  # datasets before 4.0
        arguments["trust_remote_code"] = False
    try:
        chosen = hub.split or _choose_split(hub, config, split or "train")
        rows = datasets.load_dataset(hub.name, config, split=chosen, **arguments)
        if len(rows) == 0:
            raise UserError(f"data set {hub.name}: the split {chosen!r} holds no rows")
        return [Row(dict(row), f"{hub.name}:{chosen}, row {number}") for number, row in enumerate(rows)]
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise UserError(
            f"data set {hub.name!r} (configuration {config or 'default'}) can't be loaded from the hub: "
            f"{type(error).__name__}: {reason} There is no file or folder of that name either. Check the name (syntax: "
            "owner/name@config:split#revision) and the network; or download the set elsewhere and give a JSONL or CSV file."
        ) from error


def _choose_split(hub: HubName, config: str | None, wish: str) -> str:
    import datasets

    known = KNOWN_SETS.get(hub.name)
    usual = known is not None and hub.config is None
    splits = (
        list(known.splits)
        if known and usual
        else list(datasets.get_dataset_split_names(hub.name, config, revision=hub.revision))
    )
    if wish in splits:
        return wish
    if len(splits) == 1:
        return splits[0]
    raise UserError(
        f"data set {hub.name!r} has no split {wish!r}; its splits: {listed(splits)}. Name one: {hub.name}:{splits[0]}"
    )


# Single cells, checked.


def encodable(text: str, place: str, column: str) -> str:
    """The text as it is. JSON can write half of a surrogate pair (`\\ud83d`), which can't be tokenized.

    Raises:
        UserError: it holds half a character.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{place}: column {column!r} holds half a character at position {error.start}") from None
    return text


def short(value: Any) -> str:
    """A value's repr, cut to 60 characters for a message."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def require_column(row: Row, name: str) -> None:
    """Raise `UserError` unless the row has the column."""
    if name not in row.values:
        raise UserError(
            f"{row.place}: there is no column {name!r}; the columns are {listed(row.values)}."
            f"{did_you_mean(name, list(row.values))}"
        )


def text_of(row: Row, column: str) -> str:
    """A cell's text.

    Raises:
        UserError: the cell holds something else.
    """
    value = row.values[column]
    if not isinstance(value, str):
        raise UserError(f"{row.place}: column {column!r} must hold text, not {type(value).__name__} ({short(value)})")
    return encodable(value, row.place, column)
