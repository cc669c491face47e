"""`BaseTrainer`: what every trainer's loop has: its place among the processes, hooks, metrics, and stopping on request."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlvr.boost.process import any_rank
from rlvr.errors import UserError
from rlvr.metrics import Meter
from rlvr.trackers.about import About
from rlvr.trackers.make import Wanted, makers
from rlvr.tracking import JsonlSink, Tracker
from rlvr.trainer.interrupt import Interrupted, InterruptGuard


class BaseTrainer(ABC):
    """Shared by the online and the supervised loop.

    Args:
        callbacks: objects whose methods are called by name at the loop's hooks.
        save_dir: the run's folder; None = nothing is saved.
        tracker: where metrics go.
    """

    def __init__(
        self,
        *,
        callbacks: Sequence[Any] = (),
        save_dir: str | Path | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        self.callbacks = list(callbacks)
        self.save_dir = Path(save_dir) if save_dir is not None else None
        self.tracker = tracker or Tracker()
        self.tracker.warn = self.warn
        self._about = About(folder=self.save_dir)
        self.meter = Meter()
        self._interrupt = InterruptGuard()

    @property
    def rank(self) -> int:
        return dist.get_rank() if dist.is_initialized() else 0

    @property
    def world_size(self) -> int:
        return dist.get_world_size() if dist.is_initialized() else 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def warn(self, message: str) -> None:
        """Tell callbacks (the live view among them) of something that the user should look at."""
        self._call("on_warning", message)

    def write_metrics(self, folder: Path, resumed: bool) -> None:
        """Write metrics.jsonl into the folder, on rank 0. A resumed run drops the rows behind its checkpoint."""
        if self.is_main:
            rows = JsonlSink(folder / "metrics.jsonl", keep_below=self.rows_done + 1 if resumed else 0)
            self.tracker.sinks.insert(0, rows)
            done = self.rows_done if resumed else None
            self._about = About(folder=folder, resumed_at=done, has_through=rows.found_through)

    def track(self, wanted: Wanted, **about: Any) -> None:
        """Send metrics to these trackers, too, on rank 0. A resumed run goes on where it was there, or without a tracker that
        can't be reached.

        Args:
            wanted: which.
            about: further fields of `About`: project, name, config.

        Raises:
            UserError: a tracker's package is missing, or at the beginning of a run, a tracker can't be started.
        """
        if not self.is_main:
            return
        told = replace(self._about, **about)
        for make in makers(wanted, told):
            try:
                self.tracker.sinks.append(make())
            except UserError as error:
                if told.resumed_at is None:
                    raise
                self.warn(f"{error} This session goes on without it")

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)

    def stop_asked(self) -> bool:
        """Whether any process was asked to stop; the same answer in all. Collective."""
        return any_rank(self._interrupt.requested, self._device())

    def _stop_if_asked(self) -> None:
        """Save and stop if any process was asked to; all agree, so that none waits for another for ever (pitfall A24)."""
        if not self.stop_asked():
            return
        path = self._save_checkpoint() if self.save_dir is not None else None
        raise Interrupted(self._interrupt.signum or 15, str(path) if path else None)

    @property
    @abstractmethod
    def rows_done(self) -> int:
        """What the loop counts its rows of metrics by: finished episodes, or optimizer steps."""

    @property
    @abstractmethod
    def place(self) -> str:
        """Where the loop stands, in words."""

    @abstractmethod
    def load_checkpoint(self, path: str | Path) -> None: ...

    @abstractmethod
    def _save_checkpoint(self) -> Path | None: ...

    @abstractmethod
    def _device(self) -> torch.device: ...
