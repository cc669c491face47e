"""MLflow: a server (`MLFLOW_TRACKING_URI`), or where MLflow itself keeps runs without one."""

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rlvr.trackers.about import About, starting
from rlvr.trackers.samples import COLUMNS, table_rows
from rlvr.tracking import Sink, TrackedSample

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
    """Metrics, settings as params, and a table of responses (`samples.json`), under the experiment `about.project`.

    Names of metrics lose characters that MLflow does not take.

    Raises:
        UserError: it can't be started (no server, a run that was deleted).
    """

    name = "MLflow"

    def __init__(self, about: About) -> None:
        for variable, value in PATIENCE.items():
            os.environ.setdefault(variable, value)
        import mlflow

        self.mlflow = mlflow
        known = about.id_of("mlflow")
        with starting(self, REMEDY):
            self.client = mlflow.MlflowClient()
            if known is None:
                self.run_id: str = self._begin(about)
            else:
                self.run_id = known
                self.client.update_run(known, status="RUNNING")
        about.keep_id("mlflow", self.run_id)
        self.has_through = about.has_through if known else -1

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        stores = [getattr(sys.modules[module], name) for module, name in STORES if module in sys.modules]
        # Stores import a driver (a database's, boto3) when they are first used.
        return (self.mlflow.exceptions.MlflowException, OSError, ImportError, *stores)

    def _begin(self, about: About) -> str:
        found = self.client.get_experiment_by_name(about.project)
        experiment = found.experiment_id if found else self.client.create_experiment(about.project)
        run_id: str = self.client.create_run(experiment, run_name=about.title).info.run_id
        params = [self._param(name, value) for name, value in about.flat_config().items()]
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
