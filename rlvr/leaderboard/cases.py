"""What graders are tried with: files of labelled answers, of attacks, and of texts that hang or blow up a naive grader."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr.data.rows import Row, missing_file, read_file
from rlvr.errors import UserError, listed

HOSTILE_GOLD = "42"
"""The right answer to a text that has none of its own."""


@dataclass(frozen=True)
class Case:
    """One thing to grade.

    Attributes:
        name: its id, or its place in the file.
        label: whether it is right; None where only hangs and exceptions count.
        tagged: the answer stands between <answer> tags, and counts only there.
        group: `kind: topic` of an attack, for the table of exploits; "" for others.
    """

    name: str
    response: str
    gold: str
    label: bool | None
    tagged: bool = False
    question: str | None = None
    group: str = ""

    def row(self) -> dict[str, Any]:
        """What a grader is told."""
        return {"response": self.response, "gold": self.gold, "tagged": self.tagged, "question": self.question}


@dataclass(frozen=True)
class CaseSet:
    """The cases of a file, or the texts of a folder."""

    name: str
    cases: tuple[Case, ...]


def read_sets(places: Sequence[str]) -> list[CaseSet]:
    """The sets in files and folders, in order.

    A `.jsonl` (or `.json`, `.csv`, `.parquet`) file is a set: rows of `response`, `gold`, `label`, or of `text` alone. Rows with
    `kind` and `topic` are attacks. `.txt` files are hostile texts, those of a folder together one set.

    Raises:
        UserError: nothing there, or a row without what it needs.
    """
    sets = [found for place in places for found in _sets_at(Path(place).expanduser())]
    names = [one.name for one in sets]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"two sets are called {twice[0]!r}: sets have the names of their files")
    return sets


def _sets_at(path: Path) -> list[CaseSet]:
    if path.is_dir():
        files = sorted(path.glob("*.jsonl"))
        texts = sorted(path.glob("*.txt"))
        if not files and not texts:
            raise UserError(f"{path}: no *.jsonl and no *.txt in this folder")
        return [_set(file) for file in files] + ([_texts(path.name, texts)] if texts else [])
    if not path.is_file():
        raise missing_file(path)
    return [_texts(path.stem, [path])] if path.suffix == ".txt" else [_set(path)]


def _texts(name: str, files: Sequence[Path]) -> CaseSet:
    texts = ((file.name, file.read_bytes().decode("utf-8", errors="surrogateescape")) for file in files)
    return CaseSet(name, tuple(Case(name, text, HOSTILE_GOLD, None) for name, text in texts))


def _set(path: Path) -> CaseSet:
    return CaseSet(path.stem, tuple(_case(row, number) for number, row in enumerate(read_file(path), start=1)))


def _case(row: Row, number: int) -> Case:
    values = row.values
    name = str(values.get("id") or values.get("name") or number)
    if isinstance(values.get("text"), str) and "gold" not in values:
        return Case(name, values["text"], HOSTILE_GOLD, None)
    missing = [key for key in ("response", "gold", "label") if key not in values]
    if missing:
        raise UserError(
            f"{row.place}: no {listed(missing)}; a row needs response, gold and label, or a text. It has: {listed(values)}"
        )
    label, question = values["label"], values.get("question")
    if not isinstance(label, bool | None) or not isinstance(values["response"], str):
        raise UserError(f"{row.place}: label must be true, false or null, and response a text, not {json.dumps(label)}")
    attack = "topic" in values and "kind" in values
    return Case(
        name,
        values["response"],
        str(values["gold"]),
        label,
        tagged=bool(values.get("tagged", False)),
        question=question if isinstance(question, str) else None,
        group=f"{values['kind']}: {values['topic']}" if attack else "",
    )
