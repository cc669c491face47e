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
        before = json.loads((self.folder / SETTINGS).read_text())
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
        return json.loads(path.read_text()) if path is not None and path.is_file() else {}

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write the summary."""
        if self.folder is not None:
            (self.folder / RESULT).write_text(json.dumps(result, indent=2))


def read_evaluation(folder: Path) -> tuple[str, list[Line]]:
    """The model and the responses of an evaluation that `rlvr eval --save_path` wrote.

    Raises:
        UserError: the folder holds none, or no responses yet.
    """
    if not (folder / SETTINGS).is_file():
        raise UserError(f"{folder} holds no evaluation: give a folder that `rlvr eval --save_path` wrote")
    lines = read_responses(folder / RESPONSES)
    if not lines:
        raise UserError(f"{folder} holds no responses yet: go on with `rlvr eval ... --save_path {folder} --resume`")
    return str(json.loads((folder / SETTINGS).read_text()).get("model", folder.name)), lines


def read_responses(path: Path) -> list[Line]:
    """The lines of a JSONL file up to the first that is cut short."""
    lines: list[Line] = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines
