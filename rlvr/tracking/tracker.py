"""`Tracker`: hands metrics and samples to `Sink`s, behind one small interface.

Here are the sinks that need no package: a JSONL file (a run's metrics.jsonl, which has every row) and a list. TensorBoard
and the like: `rlvr.tracking.sinks`. Rank 0 alone has sinks; what it logs was reduced over ranks by a `Meter`.
"""

import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rlvr.boost import timeline
from rlvr.errors import UserError
from rlvr.tracking.samples import TrackedSample

SAMPLE_ROWS = 1000
"""Most responses that a session shows in trackers; samples.jsonl has all."""

MAX_TRACE_BYTES = 2**26
"""A timeline of this size is not written on: that of some ten thousand episodes."""


class Sink(ABC):
    """One place that metrics go to.

    Attributes:
        name: how warnings call it.
        has_through: rows up to this step lie there already and are not sent again.
    """

    name = ""
    has_through = -1

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """Exceptions that mean that the place is gone (a server, a disk) and not that our code is wrong."""
        return ()

    @abstractmethod
    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row; `step` counts finished episodes (optimizer steps in supervised training)."""

    def log_samples(self, step: int, samples: Sequence[TrackedSample]) -> None:  # noqa: B027  not all have tables
        """Show some responses of this step."""

    def close(self, failed: bool) -> None:  # noqa: B027  most have nothing to do
        """Nothing more will come; `failed` says that the run ended by an error or a request to stop."""


class Tracker:
    """Hands metrics to all sinks. Only rank 0 has any.

    A sink whose place is gone is left out for the rest of the session, with one warning; training goes on. Any other
    exception is a mistake in the code and is passed on.

    Attributes:
        warn: gets the warnings.
    """

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self.sinks = list(sinks)
        self.warn: Callable[[str], None] = partial(print, file=sys.stderr)
        self._rows = 0

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._each(lambda sink: sink.log(step, metrics), step)

    def log_samples(self, step: int, samples: Sequence[TrackedSample]) -> None:
        """Show these responses, as long as the session has shown fewer than `SAMPLE_ROWS`."""
        samples = samples[: SAMPLE_ROWS - self._rows]
        self._rows += len(samples)
        if samples:
            self._each(lambda sink: sink.log_samples(step, samples), step)

    def close(self) -> None:
        """End all. While an exception is on its way, trackers that know of such things call the run failed."""
        failed = sys.exception() is not None
        self._each(lambda sink: sink.close(failed))
        self.sinks = []

    def _each(self, act: Callable[[Sink], None], step: int | None = None) -> None:
        for sink in list(self.sinks):
            if step is not None and step <= sink.has_through:
                continue
            try:
                act(sink)
            except sink.failures as error:
                self.sinks.remove(sink)
                self.warn(
                    f"{sink.name} failed and gets nothing more in this session: {reason_of(error)}. Training goes on, and "
                    "metrics.jsonl in the run's folder has every row"
                )


def reason_of(error: BaseException) -> str:
    """The first line of what an exception says, after its kind."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300].rstrip('.')}" if lines else type(error).__name__


class JsonlSink(Sink):
    """One JSON object a line: `{"step": 3, "objective/scores": 0.41, ...}`. NaN and infinity are written as null.

    Rows beyond `keep_below` are dropped when the file is opened: a resumed run writes them again.

    Attributes:
        found_through: the last step of the file as it was found; -1 without one.
    """

    def __init__(self, path: Path, keep_below: int | None = None) -> None:
        self.path = path
        self.found_through = -1
        path.parent.mkdir(parents=True, exist_ok=True)
        if keep_below is not None and path.exists():
            rows = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
            steps = [_step_of(row) for row in rows]
            self.found_through = max((int(step) for step in steps if math.isfinite(step)), default=-1)
            replace_text(path, "".join(row for row, step in zip(rows, steps, strict=True) if step < keep_below))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = {"step": step, **{name: v if math.isfinite(v) else None for name, v in metrics.items()}}
        append_json(self.path, row)


def _step_of(line: str) -> float:
    """The row's step; a line that a kill cut short counts as beyond any."""
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError, TypeError):
        return math.inf


def replace_text(path: Path, text: str) -> None:
    """Write a whole file, so that a process that is killed meanwhile leaves the old text or the new one.

    Raises:
        UserError: it can't be written.
    """
    draft = path.with_name(f".new-{path.name}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UserError(f"can't write {path}: {error.strerror}; free space and run again") from None


def append_json(path: Path, row: Mapping[str, Any]) -> None:
    """Add one line to a JSONL file.

    Raises:
        UserError: the file can't be written (a full disk, say).
    """
    append_text(path, json.dumps(row, ensure_ascii=False) + "\n")


def append_text(path: Path, text: str) -> None:
    """Add to a file's end; errors as of `append_json`."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"can't write {path}: {error.strerror}; free space and go on with --resume") from None


class TraceSink(Sink):
    """The run's timeline in the format of Chrome's traces, which chrome://tracing and ui.perfetto.dev open: who did what, when.

    An array of events that is never closed, as the format allows, so that a killed run leaves a whole one.

    Args:
        resumed: go on in the file of the session before.
    """

    def __init__(self, path: Path, resumed: bool) -> None:
        self.path = path
        self._roles: list[str] = []
        if not resumed:
            path.unlink(missing_ok=True)
        elif path.exists():  # without a line that a kill cut short
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        events: list[dict[str, Any]] = []
        for span in timeline.take():
            if span.role not in self._roles:
                self._roles.append(span.role)
                name = {"name": "thread_name", "ph": "M", "args": {"name": span.role}}
                events.append({**name, "pid": 0, "tid": len(self._roles)})
            times = {"ts": round(span.begin_s * 1e6), "dur": round((span.end_s - span.begin_s) * 1e6)}
            events.append({"name": span.name, "ph": "X", "pid": 0, "tid": self._roles.index(span.role) + 1, **times})
        written = self.path.stat().st_size if self.path.exists() else 0
        if events and written < MAX_TRACE_BYTES:
            begin = "" if written else "[\n"
            append_text(self.path, begin + "".join(f"{json.dumps(event)},\n" for event in events))


class MemorySink(Sink):
    """Keeps the rows: `rows` is a list of `{"step": 3, "objective/scores": 0.41, ...}`."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append({"step": step, **metrics})
