"""`BaseTrainer`: the parts that all training loops share.

Hooks, metrics and trackers, checkpoints, training time, and stopping on request. `OnlineTrainer` (PPO and its relatives) and
`SupervisedTrainer` (SFT, reward models) derive from it; the loops themselves are theirs, and have nothing in common but these
parts.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlvr.boost.process import any_rank
from rlvr.boost.signals import Interrupted, InterruptGuard
from rlvr.checkpoint.checkpointer import Checkpointer, Loaded
from rlvr.errors import UserError, listed
from rlvr.tracking.meter import Meter
from rlvr.tracking.sinks import RunInfo, TrackerSettings, sink_factories
from rlvr.tracking.tracker import JsonlSink, TraceSink, Tracker
from rlvr.trainer.callbacks import Callback


@dataclass
class Progress:
    """Counters of the work that is done.

    Attributes:
        optimizer_steps: of the whole run.
        samples: responses (in supervised training: rows) of the whole run, over all processes.
        seconds: time spent in training, over all sessions; evaluation is not counted.
    """

    optimizer_steps: int = 0
    samples: int = 0
    seconds: float = 0.0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for f in fields(self):
            value, kind = state[f.name], int | float if f.type in (float, "float") else int
            if not isinstance(value, kind):
                raise TypeError(f"{f.name} is {value!r}, and no number")
            setattr(self, f.name, value)

    def add_seconds(self, seconds: float) -> None:
        self.seconds += seconds


class BaseTrainer(ABC):
    """Shared by the online and the supervised loop. A subclass sets `progress` and, once it has its roles, `checkpointer`.

    Args:
        callbacks: objects whose methods are called by name at the loop's hooks.
        save_dir: the run's folder; None = nothing is saved.
        tracker: where metrics go.

    Attributes:
        progress: where the loop stands; it may stop and go on there.
        checkpointer: writes and reads the checkpoints.
        unfinished: metrics of the newest row while its evaluation goes on; a stop during it must not lose them.
    """

    checkpointer: Checkpointer
    progress: Progress

    def __init__(
        self,
        *,
        callbacks: Sequence[Callback] = (),
        save_dir: str | Path | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        self.callbacks = list(callbacks)
        self.save_dir = Path(save_dir) if save_dir is not None else None
        self.tracker = tracker or Tracker()
        self.tracker.warn = self.warn
        self.meter = Meter()
        self.unfinished: dict[str, float] | None = None
        self._run_info = RunInfo(folder=self.save_dir)
        self._interrupt = InterruptGuard()
        self._ticked = 0.0

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
        """Pass a warning for the user on to the callbacks, the live view among them."""
        self._call("on_warning", message)

    def write_metrics(self, folder: Path, resumed: bool) -> None:
        """Write metrics.jsonl and trace.json into the folder, on rank 0. A resumed run drops the rows after its checkpoint: it makes them again."""
        if self.is_main:
            rows = JsonlSink(folder / "metrics.jsonl", keep_below=self.rows_done + 1 if resumed else 0)
            self.tracker.sinks[:0] = [rows, TraceSink(folder / "trace.json", resumed)]
            done = self.rows_done if resumed else None
            self._run_info = RunInfo(folder=folder, resumed_at=done, has_through=rows.found_through)

    def track(self, log: TrackerSettings, **about: Any) -> None:
        """Send metrics to these trackers too, on rank 0. A resumed run goes on in the same run of each tracker; one that
        can't be reached then is left out with a warning.

        Args:
            log: names the trackers.
            about: further fields of `RunInfo`: project, name, config.

        Raises:
            UserError: a tracker's package is missing, or at the beginning of a run, a tracker can't be started.
        """
        if not self.is_main:
            return
        told = replace(self._run_info, **about)
        for make in sink_factories(log, told):
            try:
                self.tracker.sinks.append(make())
            except UserError as error:
                if told.resumed_at is None:
                    raise
                self.warn(f"{error} This session goes on without it")

    def load_checkpoint(self, path: str | Path) -> None:
        """Go on from a checkpoint: the next `fit` gives what the uninterrupted run would have given, bit for bit.

        Raises:
            UserError: the checkpoint is damaged, belongs to another run, or does not hold what a checkpoint does; the message says
                which.
        """
        try:
            loaded = self.checkpointer.load(Path(path))
            self._take_up(loaded)
        # Its digests are right, so nothing damaged it: somebody made it so, or another version of this program.
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            raise UserError(
                f"{path} does not hold what a checkpoint of this run does ({type(error).__name__}: {error}): go on from another, or start "
                "anew with another --save_path"
            ) from error
        if loaded.changed:
            self.warn(
                f"the code of {listed(loaded.changed)} has changed since {path} was saved: responses up to there were paid by the former, "
                "those from here on are by the present one"
            )

    def save_checkpoint(self) -> Path | None:
        """Write a checkpoint of this moment, if there is a folder for it. Collective. Returns its folder."""
        if self.save_dir is None:
            return None
        return self.checkpointer.save(self._checkpoint_name, self.state_dict(), self.own_state_dict())

    def _save_result(self) -> None:
        """At the end: a last checkpoint, and the trained models. Collective."""
        if self.save_dir is not None:
            self.save_checkpoint()
            self.checkpointer.export()

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(self, *arguments)

    def stop_asked(self) -> bool:
        """True in all processes if any of them was asked to stop. Collective."""
        return any_rank(self._interrupt.requested, self._device())

    def _stop_if_asked(self) -> None:
        """Save and stop if any process was asked to. All decide alike, or one would wait for another for ever (pitfall A24)."""
        if not self.stop_asked():
            return
        path = self.save_checkpoint()
        # No signal of its own: another process was asked.
        raise Interrupted(self._interrupt.signum or 15, str(path) if path else None)

    def _stop_if_diverged(self, skipped: int, limit: int) -> None:
        """Save and stop once so many optimizer steps in a row were skipped. They are in all processes alike. The weights are
        good: they are those from before the first of these steps."""
        if skipped < limit:
            return
        path = self.save_checkpoint()
        role = next(iter(self.checkpointer.roles))
        raise UserError(
            f"in {skipped} optimizer steps in a row the gradient was not finite, and they were skipped (--max_skipped_steps {limit}). "
            + (
                f"The weights from before them are in {path}. Start from them anew with a lower learning rate or --mixed_precision "
                f"fp32 (--checkpoint_path {path / role / 'modeling'}, another --save_path); --resume goes on as before"
                if path
                else "Start anew with a lower learning rate or --mixed_precision fp32"
            )
        )

    def _start_clock(self) -> None:
        """Count training time from now on; called after what is no training, such as evaluation."""
        self._ticked = time.perf_counter()

    def _tick(self) -> None:
        """Count the time since the last tick as training time."""
        now = time.perf_counter()
        self.progress.add_seconds(now - self._ticked)
        self._ticked = now

    @property
    @abstractmethod
    def rows_done(self) -> int:
        """The number of the newest row of metrics: finished episodes, or optimizer steps."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The progress of the loop in words, such as "episode 3"."""

    @property
    @abstractmethod
    def _checkpoint_name(self) -> str:
        """Folder name of a checkpoint of this moment."""

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything besides the roles that the coming steps depend on, as plain JSON; the same in every process."""

    @abstractmethod
    def own_state_dict(self) -> dict[str, Any]:
        """The part of the state that is this process's own, besides its random state: tensors and plain values."""

    @abstractmethod
    def _take_up(self, loaded: Loaded) -> None:
        """Restore what `state_dict` and `own_state_dict` gave.

        Raises:
            UserError: the run is now divided among processes in another way, or has other data.
        """

    @abstractmethod
    def _device(self) -> torch.device: ...
