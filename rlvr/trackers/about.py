"""What a tracker is told of a run, and what it is called there, so that a resumed run goes on in the same place."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlvr.errors import UserError
from rlvr.tracking import Sink, reason_of, replace_text

IDS = "trackers.json"


@dataclass(frozen=True)
class About:
    """A run, for trackers.

    Attributes:
        folder: the run's; `trackers.json` in it holds the run's id with each tracker. None = ids are not kept.
        project: what the tracker files the run under.
        name: of the run; None = the folder's name.
        config: the tree of settings.
        resumed_at: finished rows of the checkpoint that this session goes on from; None at the beginning.
        has_through: last row that an earlier session logged; -1 = none. Those behind the checkpoint come again, bit for
            bit the same.
    """

    folder: Path | None = None
    project: str = "rlvr"
    name: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    resumed_at: int | None = None
    has_through: int = -1

    @property
    def title(self) -> str | None:
        """What to call the run; None = as the tracker likes."""
        return self.name or (self.folder.resolve().name if self.folder else None)

    def id_of(self, tracker: str) -> str | None:
        """The run's id with a tracker, if an earlier session left one."""
        found = self._ids().get(tracker)
        return found if isinstance(found, str) and found else None

    def keep_id(self, tracker: str, run_id: str) -> None:
        """Leave the id for later sessions."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_text(self.folder / IDS, json.dumps({**self._ids(), tracker: run_id}, indent=1))

    def _ids(self) -> dict[str, Any]:
        if self.folder is None or not (self.folder / IDS).is_file():
            return {}
        try:
            found = json.loads((self.folder / IDS).read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise UserError(f"{self.folder / IDS} is no JSON object: delete it, and trackers begin a new run")
        return found

    def flat_config(self) -> dict[str, Any]:
        """The settings as `section.name` -> value."""
        flat: dict[str, Any] = {}
        for section, values in self.config.items():
            if isinstance(values, Mapping):
                flat |= {f"{section}.{name}": value for name, value in values.items()}
            else:
                flat[section] = values
        return flat


@contextmanager
def starting(sink: Sink, remedy: str) -> Iterator[None]:
    """A tracker that can't be reached when a run begins is the user's to mend.

    Raises:
        UserError: with what the tracker said, and the remedy.
    """
    try:
        yield
    except sink.failures as error:
        raise UserError(f"{sink.name} can't be started: {reason_of(error)}. {remedy}") from error
