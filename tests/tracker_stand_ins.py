"""Stand-ins for wandb, mlflow and trackio: what our sinks call, with the parameters that the real packages have.

Where a real package is installed, `tests/tracking/test_real.py` runs the sinks against it and compares these signatures with its own.
"""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


class Recorder:
    """What was called, in order: (name, arguments by name)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def add(self, called: str, /, **arguments: Any) -> None:
        self.calls.append((called, arguments))

    def of(self, name: str) -> list[dict[str, Any]]:
        return [arguments for called, arguments in self.calls if called == name]


class WandbTable:
    def __init__(self, columns=None, data=None) -> None:
        assert all(len(row) == len(columns) for row in data)
        self.columns, self.data = columns, data


class WandbRun:
    def __init__(self, recorder: Recorder, run_id: str) -> None:
        self.recorder, self.id = recorder, run_id
        self.gone: Exception | None = None

    def log(self, data, step=None, commit=None) -> None:
        if self.gone:
            raise self.gone
        self.recorder.add("log", data=data, step=step)

    def finish(self, exit_code=None) -> None:
        self.recorder.add("finish", exit_code=exit_code)


def wandb(recorder: Recorder) -> ModuleType:
    module: Any = ModuleType("wandb")
    module.Table = WandbTable
    module.errors = SimpleNamespace(Error=type("Error", (Exception,), {}))
    module.runs = []

    def init(project=None, name=None, config=None, dir=None, id=None, resume=None) -> WandbRun:
        recorder.add("init", project=project, name=name, config=config, dir=dir, id=id, resume=resume)
        module.runs.append(WandbRun(recorder, id or "new-id"))
        return module.runs[-1]

    module.init = init
    return module


class MlflowClient:
    """Experiments and runs in the module's own memory."""

    runs: dict[str, dict[str, Any]] = {}
    experiments: dict[str, str] = {}
    recorder: Recorder

    def get_experiment_by_name(self, name):
        found = self.experiments.get(name)
        return SimpleNamespace(experiment_id=found) if found else None

    def create_experiment(self, name) -> str:
        self.experiments[name] = f"experiment-{name}"
        return self.experiments[name]

    def create_run(self, experiment_id, start_time=None, tags=None, run_name=None):
        run_id = f"run-{len(self.runs)}"
        self.runs[run_id] = {"experiment": experiment_id, "name": run_name, "params": {}, "metrics": [], "tables": []}
        return SimpleNamespace(info=SimpleNamespace(run_id=run_id))

    def log_batch(self, run_id, metrics=(), params=(), tags=(), synchronous=None) -> None:
        assert len(params) <= 100 and len(metrics) <= 1000
        self.runs[run_id]["params"] |= {p.key: p.value for p in params}
        self.runs[run_id]["metrics"] += [(m.key, m.value, m.step) for m in metrics]

    def log_table(self, run_id, data, artifact_file) -> None:
        self.runs[run_id]["tables"].append((artifact_file, data))

    def update_run(self, run_id, status=None, name=None) -> None:
        self.runs[run_id]["status"] = status

    def set_terminated(self, run_id, status=None, end_time=None) -> None:
        self.runs[run_id]["status"] = status


def mlflow() -> ModuleType:
    module: Any = ModuleType("mlflow")
    module.MlflowClient = type("MlflowClient", (MlflowClient,), {"runs": {}, "experiments": {}})
    module.exceptions = SimpleNamespace(MlflowException=type("MlflowException", (Exception,), {}))
    module.entities = SimpleNamespace(
        Metric=lambda key, value, timestamp, step: SimpleNamespace(
            key=key, value=value, timestamp=timestamp, step=step
        ),
        Param=lambda key, value: SimpleNamespace(key=key, value=value),
    )
    return module


def trackio(recorder: Recorder) -> ModuleType:
    module: Any = ModuleType("trackio")

    class Table:
        def __init__(self, columns=None, data=None, dataframe=None) -> None:
            self.dataframe = dataframe

    def init(project, name=None, space_id=None, config=None, resume="never", embed=True) -> Any:
        recorder.add("init", project=project, name=name, config=config, resume=resume, space_id=space_id)
        return SimpleNamespace(
            name=name,
            log=lambda metrics, step=None: recorder.add("log", data=metrics, step=step),
            finish=lambda: recorder.add("finish"),
        )

    module.init, module.Table = init, Table
    return module


def recorded(name: str) -> ModuleType:
    """The stand-in of wandb or trackio, for those who don't look at what it was told."""
    return {"wandb": wandb, "trackio": trackio}[name](Recorder())


def install(monkeypatch: pytest.MonkeyPatch, module: ModuleType) -> Any:
    """Let `import NAME` find the stand-in."""
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module
