"""Where metrics go: JSONL, TensorBoard, Weights & Biases, behind one small interface with the same names."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rlvr.errors import UserError


class Sink(Protocol):
    """One place that metrics go to."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one row; `step` counts finished episodes."""
        ...

    def close(self) -> None: ...


class Tracker:
    """Hands metrics to all sinks. Only rank 0 has any."""

    def __init__(self, sinks: Sequence[Sink] = ()) -> None:
        self.sinks = list(sinks)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for sink in self.sinks:
            sink.log(step, metrics)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


class JsonlSink:
    """One JSON object a line: `{"step": 3, "objective/scores": 0.41, ...}`. NaN and infinity are written as null.

    Rows beyond `keep_below` are dropped when the file is opened: a resumed run writes them again.
    """

    def __init__(self, path: Path, keep_below: int | None = None) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if keep_below is not None and path.exists():
            rows = [line for line in path.read_text().splitlines(keepends=True) if _step_of(line) < keep_below]
            replace_text(path, "".join(rows))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = {"step": step, **{name: v if math.isfinite(v) else None for name, v in metrics.items()}}
        append_json(self.path, row)

    def close(self) -> None: ...


def _step_of(line: str) -> float:
    """The row's step; a line that a kill cut short counts as beyond any."""
    try:
        return json.loads(line)["step"]
    except (json.JSONDecodeError, KeyError):
        return math.inf


def replace_text(path: Path, text: str) -> None:
    """Write a whole file so that whoever is killed leaves the old text or the new one.

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
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UserError(f"can't write {path}: {error.strerror}; free space and go on with --resume") from None


class MemorySink:
    """Keeps the rows: `rows` is a list of `{"step": 3, "objective/scores": 0.41, ...}`."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append({"step": step, **metrics})

    def close(self) -> None: ...


class TensorBoardSink:
    """Scalars for TensorBoard. Raises UserError without the package `tensorboard`."""

    def __init__(self, log_dir: str) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(f"--log_dir {log_dir} needs TensorBoard: pip install 'rlvr[tensorboard]'") from None
        self.writer = SummaryWriter(log_dir)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WandbSink:
    """Metrics for Weights & Biases. Raises UserError without the package `wandb`."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError("--use_wandb needs Weights & Biases: pip install 'rlvr[wandb]'") from None
        self.run = wandb.init(project="rlvr", config=dict(config or {}))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def close(self) -> None:
        self.run.finish()


def make_sinks(
    log_dir: str | None = None, use_wandb: bool = False, config: Mapping[str, Any] | None = None
) -> list[Sink]:
    """The sinks that were asked for beside the JSONL file."""
    sinks: list[Sink] = []
    if log_dir:
        sinks.append(TensorBoardSink(log_dir))
    if use_wandb:
        sinks.append(WandbSink(config))
    return sinks
