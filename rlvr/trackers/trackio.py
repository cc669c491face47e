"""trackio: a database on this machine (`trackio show`), or a Space where `TRACKIO_SPACE_ID` names one."""

import os
import sqlite3
from collections.abc import Mapping, Sequence

from rlvr.trackers.about import About, starting
from rlvr.trackers.samples import COLUMNS, table_rows
from rlvr.tracking import Sink, TrackedSample


class TrackioSink(Sink):
    """Metrics, settings and a table of responses.

    Raises:
        UserError: it can't be started (a folder that can't be written, no login for a Space).
    """

    name = "trackio"

    def __init__(self, about: About) -> None:
        import trackio

        self.trackio = trackio
        known = about.id_of("trackio")
        with starting(self, "It writes to ~/.cache/huggingface/trackio; TRACKIO_DIR names another folder."):
            self.run = trackio.init(
                project=about.project,
                name=known or about.title,
                config=dict(about.config),
                space_id=os.environ.get("TRACKIO_SPACE_ID"),
                resume="allow" if known else "never",
                embed=False,
            )
        about.keep_id("trackio", self.run.name)
        self.has_through = about.has_through if known else -1

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
