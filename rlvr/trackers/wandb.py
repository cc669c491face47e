"""Weights & Biases, online or offline (`WANDB_MODE=offline`, later `wandb sync`)."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlvr.trackers.about import About, starting
from rlvr.trackers.samples import COLUMNS, table_rows
from rlvr.tracking import Sink, TrackedSample


class WandbSink(Sink):
    """Metrics, settings and a table of responses. Its files lie in the run's folder unless WANDB_DIR says otherwise.

    Raises:
        UserError: it can't be started (no login, no network).
    """

    name = "Weights & Biases"

    def __init__(self, about: About) -> None:
        import wandb

        self.wandb = wandb
        known = about.id_of("wandb")
        if about.folder is not None:
            about.folder.mkdir(parents=True, exist_ok=True)  # else it writes to a temporary one
        with starting(self, "Log in with `wandb login`, or set WANDB_MODE=offline and sync later."):
            self.run = wandb.init(
                project=about.project,
                name=about.title,
                config=dict(about.config),
                dir=os.environ.get("WANDB_DIR") or _folder(about.folder),
                id=known,
                resume="allow" if known else None,
            )
        about.keep_id("wandb", self.run.id)
        self.has_through = about.has_through if known else -1

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
