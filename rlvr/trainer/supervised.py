"""`SupervisedTrainer`: the one loop of training on given data, which SFT and reward models share.

An optimizer step takes `train_batch_size * accumulation_steps` items over all processes. Each process cuts its share into
passes of similar length, and each pass contributes its share of a loss that is normalised over the whole step, so neither
how it is cut nor the number of processes changes the result (pitfall A20).
"""

import time
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from rlvr.boost.boosted import Boosted
from rlvr.boost.phases import board
from rlvr.boost.process import all_reduce_sum
from rlvr.boost.use import memory_use
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.experience.cutting import cut_on_all_ranks
from rlvr.metrics import Meter
from rlvr.trackers.make import Wanted
from rlvr.tracking import Tracker
from rlvr.trainer.base import BaseTrainer
from rlvr.trainer.saving import RoleFiles, SupervisedCheckpointer

T = TypeVar("T")


@dataclass(frozen=True)
class SupervisedSettings:
    """The loop. Batch sizes count items over all processes.

    Attributes:
        total_steps: optimizer steps of the run.
        train_batch_size: most items in one forward and backward pass.
        accumulation_steps: an optimizer step takes so many times `train_batch_size` items.
        micro_batch_tokens: most tokens, padding included, in one pass of one process; None = no limit.
        seed: of the order of the items.
        log_interval: optimizer steps between rows of metrics; at least 1.
        eval_interval: optimizer steps between evaluations; 0 = before and after only.
        save_interval: optimizer steps between checkpoints; 0 = only at the end and when interrupted.
        keep_checkpoints: how many stay.
        pad_id: stands in padding; no result depends on it.
    """

    total_steps: int
    train_batch_size: int = 16
    accumulation_steps: int = 1
    micro_batch_tokens: int | None = None
    seed: int = 0
    log_interval: int = 10
    eval_interval: int = 0
    save_interval: int = 0
    keep_checkpoints: int = 2
    pad_id: int = 0

    @property
    def step_items(self) -> int:
        """Items of one optimizer step, over all processes."""
        return self.train_batch_size * self.accumulation_steps


@dataclass
class SupervisedProgress:
    """What is done: optimizer steps, items over all processes, and seconds of training over all sessions."""

    step: int = 0
    samples: int = 0
    seconds: float = 0.0


class SupervisedCallback:
    """Hooks into the loop, called in every process; does nothing by itself."""

    def on_fit_start(self, trainer: "SupervisedTrainer[Any]") -> None: ...
    def on_fit_end(self, trainer: "SupervisedTrainer[Any]") -> None: ...
    def on_step_end(self, trainer: "SupervisedTrainer[Any]") -> None: ...
    def on_log(self, trainer: "SupervisedTrainer[Any]", metrics: dict[str, float]) -> None: ...
    def on_evaluate_pass(self, trainer: "SupervisedTrainer[Any]", done: int, passes: int) -> None: ...
    def on_evaluate_end(self, trainer: "SupervisedTrainer[Any]", metrics: dict[str, float]) -> None: ...
    def on_warning(self, trainer: "SupervisedTrainer[Any]", message: str) -> None: ...


class SupervisedTrainer(BaseTrainer, Generic[T]):
    """The loop. A subclass says what a row costs, how much it weighs, and what the loss of some rows is.

    A *row* is what goes into a forward pass as one: an item, or several packed together. After every optimizer step
    there is a safe point: a requested stop saves there, and a resumed run goes on from there with the same results.

    Args:
        role: the boosted model with its optimizer.
        files: how its weights are written and read.
        items: what to learn from; the same on every process.
        held_out: what to evaluate on; may be empty.
        settings: see `SupervisedSettings`.
        callbacks: see `SupervisedCallback`.
        save_dir: the run's folder; None = nothing is saved.
        tracker: where metrics go.
        run_state: what the run is (plain JSON); a checkpoint with another is refused.

    Raises:
        UserError: no items, or a batch size that does not divide among the processes.
    """

    def __init__(
        self,
        role: Boosted,
        files: RoleFiles,
        items: Sequence[T],
        held_out: Sequence[T],
        settings: SupervisedSettings,
        *,
        callbacks: Sequence[SupervisedCallback] = (),
        save_dir: str | Path | None = None,
        tracker: Tracker | None = None,
        run_state: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(callbacks=callbacks, save_dir=save_dir, tracker=tracker)
        if settings.train_batch_size % self.world_size:
            raise UserError(
                f"--train_batch_size {settings.train_batch_size} does not divide among {self.world_size} processes: give a "
                f"multiple of {self.world_size}"
            )
        self.role, self.items, self.held_out, self.settings = role, list(items), list(held_out), settings
        self.sampler = PromptSampler(len(self.items), settings.step_items, settings.seed)
        self.progress = SupervisedProgress()
        # Metrics of the last step while its evaluation goes on; a stop in it must not lose them.
        self._unfinished: dict[str, float] | None = None
        self._ticked = 0.0
        self._checkpointer = SupervisedCheckpointer(self, files, run_state or {}, settings.keep_checkpoints)

    @property
    def rows_done(self) -> int:
        return self.progress.step

    @property
    def place(self) -> str:
        return f"step {self.progress.step}"

    @property
    def result(self) -> Path | None:
        """Where `fit` leaves the trained model."""
        return self.save_dir and self.save_dir / self._checkpointer.role.name / (
            "modeling" if self._checkpointer.writes_whole else "adapter"
        )

    def load_checkpoint(self, path: str | Path) -> None:
        """Go on from a checkpoint: the next `fit` gives what the uninterrupted run would have given, bit for bit.

        Raises:
            UserError: the checkpoint is damaged or belongs to another run; the message says which.
        """
        self._checkpointer.load(Path(path))

    def fit(self, log_dir: str | None = None, use_wandb: bool = False) -> None:
        """Train until `total_steps` optimizer steps are done, counting those that a loaded checkpoint brought along.

        Args:
            log_dir: folder for TensorBoard, if given.
            use_wandb: log to Weights & Biases.

        Raises:
            Interrupted: after SIGINT or SIGTERM, at the next safe point, with a checkpoint saved.
        """
        s = self.settings
        self.track(Wanted(log_dir, use_wandb))
        with self._interrupt:
            self._call("on_fit_start")
            if self.progress.step == 0:
                self._unfinished = {}
            self._finish_row()
            self._ticked = time.perf_counter()
            while self.progress.step < s.total_steps:
                self._train_step()
                self._end_step()
            self._finish()
            if self.save_dir is not None:
                self._checkpointer.save()
                self._checkpointer.export()
            self._call("on_fit_end")

    def _train_step(self) -> None:
        """One optimizer step on this process's share of the next items."""
        board.enter("update")
        self.sampler.counter = self.progress.step
        share = [self.items[i] for i in self.sampler.indices(self.rank, self.world_size)]
        size = self._total_weight(share)
        self.meter.add("lr", self.role.lr)
        passes = self._passes(share)
        grad_norm = self.role.learn([partial(self._counted_loss, rows, size) for rows in passes])
        self.meter.add("train/loss", 0.0, 1 / self.world_size)  # counts the step: its loss came in shares
        self.meter.add("grad_norm", grad_norm)
        self.progress.step += 1
        self.progress.samples += self.settings.step_items

    def _counted_loss(self, rows: Sequence[Sequence[T]], size: float) -> Tensor:
        loss = self._loss(rows, size, self.meter)
        self.meter.add("train/loss", loss.detach(), 0)
        return loss

    def _end_step(self) -> None:
        p, s = self.progress, self.settings
        self._tick()
        self._call("on_step_end")
        last = p.step == s.total_steps
        metrics: dict[str, float] = {}
        if last or p.step % s.log_interval == 0:
            metrics = self._metrics()
            self._call("on_log", metrics)
        if last or (s.eval_interval and p.step % s.eval_interval == 0):
            self._unfinished = metrics
            self._finish_row()
        else:
            self._log(metrics)
        if s.save_interval and p.step % s.save_interval == 0 and not last:
            self._save_checkpoint()
        self._stop_if_asked()

    def _finish_row(self) -> None:
        """Evaluate and write the row of metrics that waits for it, if there is one."""
        if self._unfinished is not None:
            metrics = self._unfinished | self._evaluate()
            self._unfinished = None
            self._log(metrics)

    def _metrics(self) -> dict[str, float]:
        """Means since the last row of metrics."""
        self.meter.add_peaks(memory_use())
        metrics = self.meter.means() | {"time/total": self.progress.seconds}
        self.meter = Meter()
        return metrics

    def _log(self, metrics: dict[str, float]) -> None:
        if metrics and self.is_main:
            p = self.progress
            self.tracker.log(p.step, {"epoch": p.samples / len(self.items), "samples": p.samples, **metrics})

    def _evaluate(self) -> dict[str, float]:
        """Held-out metrics."""
        if not self.held_out:
            return {}
        board.enter("evaluation")
        metrics = self._held_out_metrics(self._measured(self.held_out))
        self._ticked = time.perf_counter()  # evaluation is not training time
        self._call("on_evaluate_end", metrics)
        return metrics

    def _measured(self, items: Sequence[T]) -> dict[str, float]:
        """Means over the items, of which every process takes its stride; between two passes it may be stopped.
        Collective."""
        meter = Meter()
        passes = self._passes(items[self.rank :: self.world_size])
        for index, rows in enumerate(passes):
            self._stop_if_asked()
            with torch.no_grad():
                self._measure(rows, meter)
            self._call("on_evaluate_pass", index + 1, len(passes))
        return meter.means()

    def _passes(self, items: Sequence[T]) -> list[list[list[T]]]:
        """Items as rows, rows as passes of similar length: as many on every process, where the last may be without
        rows. Collective."""
        s = self.settings
        rows = self._rows(items)
        lengths = [self._row_tokens(row) for row in rows]
        most = max(1, s.train_batch_size // self.world_size)
        packed = getattr(self.role.unwrapped, "packs", False)
        passes = cut_on_all_ranks(lengths, most, self._device(), max_tokens=s.micro_batch_tokens, packed=packed)
        return [[rows[i] for i in places] for places in passes]

    def _total_weight(self, items: Sequence[T]) -> float:
        """What the loss of an optimizer step is divided by. Collective."""
        weight = torch.tensor(float(sum(map(self._weight, items))), dtype=torch.float64, device=self._device())
        return float(all_reduce_sum(weight)) or 1.0

    def _tick(self) -> None:
        now = time.perf_counter()
        self.progress.seconds += now - self._ticked
        self._ticked = now

    def _save_checkpoint(self) -> Path | None:
        return self._checkpointer.save() if self.save_dir is not None else None

    def _device(self) -> torch.device:
        return self.role.device

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands and in which data; plain JSON."""
        return {
            "progress": asdict(self.progress),
            "sampler": self.sampler.state_dict(),
            "unfinished": self._unfinished,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up what `state_dict` returned.

        Raises:
            UserError: it belongs to other data.
        """
        self.sampler.load_state_dict(state["sampler"])
        self.progress = SupervisedProgress(**state["progress"])
        self._unfinished = state["unfinished"]

    def _rows(self, items: Sequence[T]) -> list[list[T]]:
        """One row for each item, unless a subclass packs."""
        return [[item] for item in items]

    def _finish(self) -> None:
        """After the last step, before the result is saved."""

    @abstractmethod
    def _row_tokens(self, row: Sequence[T]) -> int: ...

    @abstractmethod
    def _weight(self, item: T) -> float: ...

    @abstractmethod
    def _loss(self, rows: Sequence[Sequence[T]], size: float, meter: Meter) -> Tensor:
        """These rows' share of a loss whose divisor is `size`; for no rows 0, with a path for gradients."""

    @abstractmethod
    def _measure(self, rows: Sequence[Sequence[T]], meter: Meter) -> None: ...

    @abstractmethod
    def _held_out_metrics(self, means: dict[str, float]) -> dict[str, float]: ...
