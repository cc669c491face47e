"""An evaluation on disk: a folder with its settings and a line for each response, with which a later process goes on.

    FOLDER/
      settings.json      what is evaluated and how; an evaluation with other settings is refused
      responses.jsonl    {"problem", "dataset", "sample", "question", "gold", "response", "status", "answer", ...}
      result.json        the summary

`rlvr eval` writes it, `rlvr compare` reads it; the latter is why nothing here imports torch.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr.config.files import parse_json, read_json, read_text
from rlvr.errors import UserError

SETTINGS, RESPONSES, RESULT = "settings.json", "responses.jsonl", "result.json"
Line = Mapping[str, Any]
"""A response with its verdict, as plain JSON."""


class Records:
    """The responses so far, in order; kept in memory, and in a folder if there is one.

    Args:
        folder: None = nothing is written.
        settings: plain JSON.
        resume: go on with what the folder holds.
        unit: lines that belong together; what a kill left of an unfinished unit is dropped.
        total: lines of the whole evaluation.

    Raises:
        UserError: the folder can't be written, holds an evaluation and `resume` was not given, or one with other settings.
    """

    def __init__(
        self, folder: Path | None, settings: Mapping[str, Any], *, resume: bool, unit: int, total: int
    ) -> None:
        self.folder, self.lines = folder, list[Line]()
        if folder is None:
            return
        path = folder / SETTINGS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if path.exists():
                self._take_up(settings, resume, unit, total)
            else:
                path.write_text(json.dumps(settings, indent=1))
                (folder / RESPONSES).write_text("")
        except OSError as error:
            raise UserError(f"--save_path {folder}: {error.strerror}") from None

    def _take_up(self, settings: Mapping[str, Any], resume: bool, unit: int, total: int) -> None:
        assert self.folder is not None
        if not resume:
            raise UserError(
                f"--save_path {self.folder} holds an evaluation: give --resume to go on with it, or another folder"
            )
        before = _object(self.folder / SETTINGS)
        differing = [k for k in {**before, **settings} if before.get(k) != settings.get(k)]
        if differing:
            name = differing[0]
            raise UserError(
                f"--save_path {self.folder} holds an evaluation with {name} {before.get(name)!r} instead of "
                f"{settings.get(name)!r}: give what it had, or another folder"
            )
        whole = read_responses(self.folder / RESPONSES)
        kept = whole[:total] if len(whole) >= total else whole[: len(whole) // unit * unit]
        (self.folder / RESPONSES).write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.lines = list(kept)

    def add(self, lines: Sequence[Line]) -> None:
        """Append finished responses."""
        self.lines += lines
        if self.folder is None:
            return
        try:
            with (self.folder / RESPONSES).open("a", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        except OSError as error:
            raise UserError(
                f"--save_path {self.folder}: {error.strerror}; free space and go on with --resume"
            ) from None

    def earlier_result(self) -> Mapping[str, Any]:
        """The summary that the folder holds; empty where there is none."""
        path = self.folder / RESULT if self.folder is not None else None
        return _object(path) if path is not None and path.is_file() else {}

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the summary."""
        if self.folder is not None:
            (self.folder / RESULT).write_text(json.dumps(result, indent=2))


def read_evaluation(folder: Path) -> tuple[str, list[Line]]:
    """The model and the responses of an evaluation that `rlvr eval --save_path` wrote.

    Raises:
        UserError: the folder holds none, no responses yet, or something else in place of them.
    """
    if not (folder / SETTINGS).is_file():
        raise UserError(f"{folder} holds no evaluation: give a folder that `rlvr eval --save_path` wrote")
    lines = read_responses(folder / RESPONSES)
    for number, line in enumerate(lines, start=1):
        if wrong := [name for name, kind in _NEEDED.items() if not isinstance(line.get(name), kind)]:
            raise UserError(
                f"{folder / RESPONSES}:{number}: {wrong[0]!r} is missing or of the wrong type; `rlvr eval` wrote something else"
            )
    if not lines:
        raise UserError(f"{folder} holds no responses yet: go on with `rlvr eval ... --save_path {folder} --resume`")
    return str(_object(folder / SETTINGS).get("model", folder.name)), lines


_NEEDED = {"problem": str, "dataset": str, "question": str, "correct": bool | int | float}


def read_responses(path: Path) -> list[Line]:
    """The lines of a JSONL file up to the first that is cut short, as a kill leaves it.

    Raises:
        UserError: it can't be read, or holds something else.
    """
    lines: list[Line] = []
    try:
        texts = read_text(path).splitlines() if path.exists() else []
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    for number, text in enumerate(texts, start=1):
        try:
            line = parse_json(text)
        except ValueError as error:
            if number < len(texts):
                raise UserError(f"{path}:{number}: {error}") from None
            break
        if not isinstance(line, dict):
            raise UserError(f"{path}:{number}: must be a JSON object, not {type(line).__name__}")
        lines.append(line)
    return lines


def _object(path: Path) -> dict[str, Any]:
    """The JSON object in a file of the evaluation."""
    try:
        found = read_json(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{path}: must hold a JSON object, not {type(found).__name__}")
    return found
