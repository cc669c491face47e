"""The sinks with the real packages, each where it is installed: what they leave, that a second session goes on in the same
run, and that our stand-ins take what the packages take."""

import glob
import inspect
import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import tracker_stand_ins

from rlvr.config import LogConfig
from rlvr.errors import UserError
from rlvr.tracking.samples import COLUMNS, TrackedSample
from rlvr.tracking.sinks import RunInfo, sink_factories
from rlvr.tracking.tracker import Tracker

CONFIG = {"train": {"lr": 0.1, "names": ["a", "b"], "warmup": None}, "log": {"use": True}}
SAMPLE = TrackedSample("2+3=?", "<think>a</think><answer>5</answer>", "a", "5", "5", "correct", 1.0)
METRICS = {"objective/scores": 0.5, "reward/nan": float("nan")}


def two_sessions(wanted: LogConfig, folder: Path) -> None:
    """Steps 0 to 2 with samples, then a resumed session with step 3."""
    (make,) = sink_factories(wanted, RunInfo(folder=folder, project="p", config=CONFIG))
    tracker = Tracker([make()])
    for step in range(3):
        tracker.log(step, METRICS)
    tracker.log_samples(2, [SAMPLE, SAMPLE])
    tracker.close()
    about = RunInfo(folder=folder, project="p", config=CONFIG, resumed_at=1, has_through=2)
    (make,) = sink_factories(wanted, about)
    tracker = Tracker([make()])
    for step in (2, 3):
        tracker.log(step, METRICS)
    tracker.close()


def in_a_process(code: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run this in `folder`, in an interpreter of its own: the packages keep services and temporary files until theirs ends."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "TRACKIO_"))}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**plain, "PYTHONPATH": paths, **env}, capture_output=True, text=True,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def run_two_sessions(tracker: str, folder: Path, **env: str) -> None:
    code = (
        "from pathlib import Path; from test_real import two_sessions; from rlvr.config import LogConfig; "
        f"two_sessions(LogConfig(use_{tracker}=True), Path('run'))"
    )
    done = in_a_process(code, folder, **env)
    assert done.returncode == 0, done.stderr


def test_wandb_offline(tmp_path: Path) -> None:
    wandb = pytest.importorskip("wandb")
    run_two_sessions("wandb", tmp_path, WANDB_MODE="offline", WANDB_SILENT="true")
    (known,) = json.loads((tmp_path / "run" / "trackers.json").read_text()).values()
    written = sorted(glob.glob(str(tmp_path / "run" / "wandb" / f"offline-run-*-{known}" / "*.wandb")))
    assert len(written) == 2  # a folder for each session, under one id, for `wandb sync`
    assert b"objective/scores" in Path(written[0]).read_bytes()
    (table,) = (tmp_path / "run" / "wandb").glob("*/files/media/table/samples_2_*.table.json")
    shown = json.loads(table.read_text())
    assert shown["columns"] == list(COLUMNS) and shown["data"] == [[2, *vars(SAMPLE).values()]] * 2
    same_parameters(wandb.init, tracker_stand_ins.wandb(tracker_stand_ins.Recorder()).init)
    same_parameters(wandb.Table, tracker_stand_ins.WandbTable)
    for method in ("log", "finish"):
        same_parameters(getattr(wandb.Run, method), getattr(tracker_stand_ins.WandbRun, method))
    assert issubclass(wandb.errors.CommError, wandb.errors.Error)


def test_wandb_that_can_not_log_in_says_so(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    code = (
        "from pathlib import Path; from rlvr.tracking.sinks import *; "
        "(make,) = sink_factories(LogConfig(use_wandb=True), RunInfo(folder=Path('run'))); make()"
    )
    done = in_a_process(code, tmp_path, HOME=str(tmp_path), NETRC=str(tmp_path / "netrc"))
    assert re.search(r"UserError: Weights & Biases can't be started: .*`wandb login`", done.stderr)


def test_mlflow_without_a_server(tmp_path: Path, monkeypatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)  # where its artifacts go
    two_sessions(LogConfig(use_mlflow=True), tmp_path / "run")
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("p").experiment_id])
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert json.loads((tmp_path / "run" / "trackers.json").read_text()) == {"mlflow": run.info.run_id}
    history = client.get_metric_history(run.info.run_id, "objective/scores")
    assert [(metric.step, metric.value) for metric in history] == [(step, 0.5) for step in range(4)]
    assert run.data.params["train.lr"] == "0.1" and run.data.params["train.names"] == "['a', 'b']"
    (table,) = (tmp_path / "mlruns").rglob("samples.json")
    shown = json.loads(table.read_text())
    assert shown["columns"] == list(COLUMNS) and shown["data"] == [[2, *vars(SAMPLE).values()]] * 2
    for method in ("get_experiment_by_name", "create_run", "log_batch", "log_table", "update_run", "set_terminated"):
        same_parameters(getattr(mlflow.MlflowClient, method), getattr(tracker_stand_ins.MlflowClient, method))


def test_mlflow_whose_server_goes_away_costs_a_warning(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    said: list[str] = []
    with mlflow_server() as (address, asked):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
        (make,) = sink_factories(LogConfig(use_mlflow=True), RunInfo(folder=tmp_path / "run", config=CONFIG))
        tracker = Tracker([make()])
        tracker.warn = said.append
        tracker.log(1, METRICS)
    assert said == [] and {"create", "log-batch"} <= {path.rpartition("/")[2] for path in asked}
    for step in (2, 3):
        tracker.log(step, METRICS)
    tracker.close()
    assert len(said) == 1 and said[0].startswith("MLflow failed and gets nothing more in this session: MlflowException")
    (make,) = sink_factories(LogConfig(use_mlflow=True), RunInfo(folder=tmp_path / "other"))
    with pytest.raises(UserError, match=r"MLflow can't be started: .* MLFLOW_TRACKING_URI names a server that answers"):
        make()


@contextmanager
def mlflow_server() -> Iterator[tuple[str, list[str]]]:
    """The few answers of a tracking server that a run needs, and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.do_POST()

        def do_POST(self) -> None:
            path = self.path.partition("?")[0]
            asked.append(path)
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            answers: dict[str, Any] = {
                "get-by-name": {"experiment": {"experiment_id": "1", "name": "rlvr", "lifecycle_stage": "active"}},
                "create": {"run": {"info": {"run_id": "abc", "experiment_id": "1", "status": "RUNNING"}, "data": {}}},
            }
            body = json.dumps(answers.get(path.rpartition("/")[2], {})).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_trackio_on_this_machine(tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    run_two_sessions("trackio", tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"))
    assert json.loads((tmp_path / "run" / "trackers.json").read_text()) == {"trackio": "run"}
    with sqlite3.connect(tmp_path / "trackio" / "p.db") as database:
        rows = database.execute("SELECT run_name, step, metrics FROM metrics ORDER BY id").fetchall()
    told = [(name, step, json.loads(metrics)) for name, step, metrics in rows]
    assert [step for _, step, metrics in told if "objective/scores" in metrics] == [0, 1, 2, 3]
    assert {name for name, _, _ in told} == {"run"}
    (table,) = [metrics["samples"] for _, _, metrics in told if "samples" in metrics]
    assert table["_value"] == [{"step": 2, **vars(SAMPLE)}] * 2
    import trackio

    stand_in = tracker_stand_ins.trackio(tracker_stand_ins.Recorder())
    same_parameters(trackio.init, stand_in.init)
    same_parameters(trackio.Table, stand_in.Table)
    same_parameters(trackio.Run.log, lambda self, metrics, step=None: None)


def same_parameters(real: Callable[..., Any], stand_in: Callable[..., Any]) -> None:
    """Each parameter of the stand-in is one of the real thing, and all that this demands are there."""
    theirs, ours = (inspect.signature(one).parameters for one in (real, stand_in))
    assert set(ours) <= set(theirs), set(ours) - set(theirs)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = {name for name, p in theirs.items() if p.default is p.empty and p.kind not in kinds}
    assert needed <= set(ours), needed - set(ours)


def test_the_check_of_parameters_can_fail() -> None:
    def real(a: int, b: int = 0) -> None: ...

    same_parameters(real, lambda a: None)
    for wrong in (lambda a, c: None, lambda b: None):
        with pytest.raises(AssertionError):
            same_parameters(real, wrong)
