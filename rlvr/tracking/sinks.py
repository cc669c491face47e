"""TensorBoard, Weights & Biases, MLflow and trackio as sinks of `rlvr.tracking.tracker`, and which of them a run gets.

All four have one shape: they start with what they are told of the run (`RunInfo`), go on in the same place when it is
resumed, and name the exceptions that mean that their server or disk is gone. Their packages are imported when a sink is
made, because each is optional; settings are checked with this file.
"""

import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from rlvr.config import LogConfig
from rlvr.config.files import read_json
from rlvr.config.supervised import RowsConfig
from rlvr.errors import UserError
from rlvr.tracking.samples import COLUMNS, TrackedSample, table_rows
from rlvr.tracking.tracker import Sink, reason_of, replace_text

TrackerSettings = LogConfig | RowsConfig
"""The settings' section `log`, of PPO or of supervised training."""


@dataclass(frozen=True)
class Package:
    """A tracker's flag, package (which is also the name of our extra) and proper name."""

    flag: str
    module: str
    title: str


PACKAGES = (
    Package("log_dir", "tensorboard", "TensorBoard"),
    Package("use_wandb", "wandb", "Weights & Biases"),
    Package("use_mlflow", "mlflow", "MLflow"),
    Package("use_trackio", "trackio", "trackio"),
)


def sink_factories(log: TrackerSettings, run: "RunInfo") -> list[Callable[[], Sink]]:
    """A function for each tracker that the settings name, which starts its sink: one that can't be started need not keep
    the others from it.

    Raises:
        UserError: a package is missing.
    """
    check_trackers(log)
    factories: list[Callable[[], Sink]] = []
    if log.log_dir:
        factories.append(partial(TensorBoardSink, log.log_dir, run))
    if log.use_wandb:
        factories.append(partial(WandbSink, run))
    if log.use_mlflow:
        factories.append(partial(MLflowSink, run))
    if log.use_trackio:
        factories.append(partial(TrackioSink, run))
    return factories


def check_trackers(log: TrackerSettings) -> None:
    """Refuse trackers whose package is missing.

    Args:
        log: the settings' section `log`.

    Raises:
        UserError: says how to install the package.
    """
    for package in PACKAGES:
        value = getattr(log, package.flag)
        if value and not _is_there(package.module):
            given = f"--{package.flag}" if value is True else f"--{package.flag} {value}"
            raise UserError(f"{given} needs {package.title}: pip install 'rlvr[{package.module}]'")


def _is_there(module: str) -> bool:
    if module in sys.modules:
        return sys.modules[module] is not None
    return find_spec(module) is not None


IDS = "trackers.json"


@dataclass(frozen=True)
class RunInfo:
    """A run as trackers are told of it, and its ids there, by which a resumed run goes on in the same place.

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
        """Name for the run; None = as the tracker likes."""
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
            found = read_json(self.folder / IDS)
        except (OSError, ValueError):
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
def explain_failed_start(sink: Sink, remedy: str) -> Iterator[None]:
    """Turn a sink's failure to start into a message: the user can do something about a tracker that can't be reached.

    Raises:
        UserError: with what the tracker said, and the remedy.
    """
    try:
        yield
    except sink.failures as error:
        raise UserError(f"{sink.name} can't be started: {reason_of(error)}. {remedy}") from error


class TensorBoardSink(Sink):
    """Scalars, settings and responses (as text) in event files in `log_dir`.

    It writes every two minutes, so a kill loses rows that others have: a resumed run has TensorBoard forget what lies
    behind the checkpoint, and writes it again.

    Raises:
        UserError: the folder can't be written.
    """

    name = "TensorBoard"

    def __init__(self, log_dir: str, run: RunInfo) -> None:
        from torch.utils.tensorboard import SummaryWriter

        purge = None if run.resumed_at is None else run.resumed_at + 1
        with explain_failed_start(self, f"Give --log_dir a folder that can be written, not {log_dir}."):
            self.writer = SummaryWriter(log_dir, purge_step=purge)
        if run.config and run.resumed_at is None:
            self.writer.add_text("config", literal(yaml.safe_dump(dict(run.config), sort_keys=False)), 0)

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        return (OSError,)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def log_samples(self, step: int, samples: Sequence[TrackedSample]) -> None:
        self.writer.add_text("samples", "\n\n".join(map(_markdown, samples)), step)

    def close(self, failed: bool) -> None:
        self.writer.close()


def _markdown(sample: TrackedSample) -> str:
    reward = "-" if sample.reward is None else f"{sample.reward:.4g}"
    parts = {"prompt": sample.prompt, "think": sample.think, "answer": sample.answer}
    if not sample.think and not sample.answer:
        parts = {"prompt": sample.prompt, "response": sample.response}
    parts["gold"] = sample.gold
    told = [f"**{name}**\n\n{literal(text)}" for name, text in parts.items() if text]
    return "\n\n".join([f"**{sample.verdict}**, reward {reward}", *told, "---"])


def literal(text: str) -> str:
    """A block of Markdown that shows the text as it is, whatever it holds."""
    return "\n".join(f"    {line}" for line in text.splitlines())


class WandbSink(Sink):
    """Metrics, settings and a table of responses, online or offline (`WANDB_MODE=offline`, later `wandb sync`). Its files lie
    in the run's folder unless WANDB_DIR says otherwise.

    Raises:
        UserError: it can't be started (no login, no network).
    """

    name = "Weights & Biases"

    def __init__(self, run: RunInfo) -> None:
        import wandb

        self.wandb = wandb
        known = run.id_of("wandb")
        if run.folder is not None:
            run.folder.mkdir(parents=True, exist_ok=True)  # else it writes to a temporary one
        with explain_failed_start(self, "Log in with `wandb login`, or set WANDB_MODE=offline and sync later."):
            self.run = wandb.init(
                project=run.project,
                name=run.title,
                config=dict(run.config),
                dir=os.environ.get("WANDB_DIR") or _folder(run.folder),
                id=known,
                resume="allow" if known else None,
            )
        run.keep_id("wandb", self.run.id)
        self.has_through = run.has_through if known else -1

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        return (self.wandb.errors.Error, OSError)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def log_samples(self, step: int, samples: Sequence[TrackedSample]) -> None:
        table = self.wandb.Table(columns=list(COLUMNS), data=table_rows(step, samples))
        self.run.log({"samples": table}, step=step)

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


def _folder(folder: Path | None) -> str | None:
    return str(folder) if folder is not None else None


# MLflow's own patience with a server that is gone is minutes, and training would wait. The user's values win.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
# What stores of artifacts raise; their packages are there if one of them is in use.
STORES = (
    ("botocore.exceptions", "BotoCoreError"),
    ("botocore.exceptions", "ClientError"),
    ("google.api_core.exceptions", "GoogleAPIError"),
    ("azure.core.exceptions", "AzureError"),
)
TABLE = "samples.json"
MOST_PARAMS, LONGEST_PARAM = 100, 500
REMEDY = "See that MLFLOW_TRACKING_URI names a server that answers, or unset it (pip install 'rlvr[mlflow]' has what that needs)."


class MLflowSink(Sink):
    """Metrics, settings as params, and a table of responses (`samples.json`), under the experiment `run.project`: on a server
    (`MLFLOW_TRACKING_URI`), or where MLflow itself keeps runs without one.

    Names of metrics lose characters that MLflow does not take.

    Raises:
        UserError: it can't be started (no server, a run that was deleted).
    """

    name = "MLflow"

    def __init__(self, run: RunInfo) -> None:
        for variable, value in PATIENCE.items():
            os.environ.setdefault(variable, value)
        import mlflow

        self.mlflow = mlflow
        known = run.id_of("mlflow")
        with explain_failed_start(self, REMEDY):
            self.client = mlflow.MlflowClient()
            if known is None:
                self.run_id: str = self._begin(run)
            else:
                self.run_id = known
                self.client.update_run(known, status="RUNNING")
        run.keep_id("mlflow", self.run_id)
        self.has_through = run.has_through if known else -1

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        stores = [getattr(sys.modules[module], name) for module, name in STORES if module in sys.modules]
        # Stores import a driver (a database's, boto3) when they are first used.
        return (self.mlflow.exceptions.MlflowException, OSError, ImportError, *stores)

    def _begin(self, run: RunInfo) -> str:
        found = self.client.get_experiment_by_name(run.project)
        experiment = found.experiment_id if found else self.client.create_experiment(run.project)
        run_id: str = self.client.create_run(experiment, run_name=run.title).info.run_id
        params = [self._param(name, value) for name, value in run.flat_config().items()]
        for start in range(0, len(params), MOST_PARAMS):
            self.client.log_batch(run_id, params=params[start : start + MOST_PARAMS])
        return run_id

    def _param(self, name: str, value: Any) -> Any:
        return self.mlflow.entities.Param(allowed(name), str(value)[:LONGEST_PARAM])

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        row = [self.mlflow.entities.Metric(allowed(name), float(value), now, step) for name, value in metrics.items()]
        self.client.log_batch(self.run_id, metrics=row)

    def log_samples(self, step: int, samples: Sequence[TrackedSample]) -> None:
        columns = zip(*table_rows(step, samples), strict=True)
        self.client.log_table(self.run_id, dict(zip(COLUMNS, map(list, columns), strict=True)), TABLE)

    def close(self, failed: bool) -> None:
        self.client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


def allowed(name: str) -> str:
    """A name of a metric or param as MLflow takes it: word characters, `-`, `.`, `:`, space, and `/` between parts."""
    parts = [re.sub(r"[^\w\-. :]", "_", part, flags=re.ASCII) for part in name.split("/")]
    return "/".join("_" if part in ("", ".", "..") else part for part in parts)[:250]


class TrackioSink(Sink):
    """Metrics, settings and a table of responses, in a database on this machine (`trackio show`) or in a Space where
    `TRACKIO_SPACE_ID` names one.

    Raises:
        UserError: it can't be started (a folder that can't be written, no login for a Space).
    """

    name = "trackio"

    def __init__(self, run: RunInfo) -> None:
        import trackio

        self.trackio = trackio
        known = run.id_of("trackio")
        with explain_failed_start(self, "It writes to ~/.cache/huggingface/trackio; TRACKIO_DIR names another folder."):
            self.run = trackio.init(
                project=run.project,
                name=known or run.title,
                config=dict(run.config),
                space_id=os.environ.get("TRACKIO_SPACE_ID"),
                resume="allow" if known else "never",
                embed=False,
            )
        run.keep_id("trackio", self.run.name)
        self.has_through = run.has_through if known else -1

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        return (OSError, sqlite3.Error)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def log_samples(self, step: int, samples: Sequence[TrackedSample]) -> None:
        from pandas import DataFrame

        table = self.trackio.Table(dataframe=DataFrame(table_rows(step, samples), columns=list(COLUMNS)))
        self.run.log({"samples": table}, step=step)

    def close(self, failed: bool) -> None:
        self.run.finish()
