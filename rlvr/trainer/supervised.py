"""`SupervisedTrainer`: the loop of training on given data, which SFT and reward models share.

An optimizer step takes `train_batch_size * accumulation_steps` items over all processes. Each process cuts its share into
passes of similar length, and each pass contributes its share of a loss that is normalised over the whole step, so neither
how it is cut nor the number of processes changes the result (pitfall A20).
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from rlvr.boost.boosted import Boosted
from rlvr.boost.health import enter_phase
from rlvr.boost.plugins import resolve_precision
from rlvr.boost.process import all_reduce_sum
from rlvr.checkpoint.checkpointer import BoostedRole, Checkpointer, Loaded
from rlvr.checkpoint.storage import checkpoint_name
from rlvr.config import LogConfig, RewardTrainingConfig, SFTConfig
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError
from rlvr.experience.micro_batches import cut_on_all_ranks
from rlvr.memory.usage import memory_use
from rlvr.tracking.meter import Meter
from rlvr.tracking.tracker import Tracker
from rlvr.trainer.base import BaseTrainer, Progress
from rlvr.trainer.callbacks import Callback

T = TypeVar("T")
SupervisedConfig = SFTConfig | RewardTrainingConfig


def total_steps(config: SupervisedConfig, rows: int) -> int:
    """Optimizer steps of a run over this many rows."""
    t = config.train
    return t.max_steps or math.ceil(t.num_epochs * rows / (t.train_batch_size * t.accumulation_steps))


def boost(booster: Any, model: torch.nn.Module, optimizer: Any, lr_scheduler: Any, config: SupervisedConfig) -> Boosted:
    """The model under its Booster, with clipping and precision from the settings."""
    device = next(model.parameters()).device
    precision = resolve_precision(config.parallel.mixed_precision, device)
    return Boosted(booster, model, optimizer, lr_scheduler, grad_clip=config.train.grad_clip, precision=precision)


class SupervisedTrainer(BaseTrainer, Generic[T]):
    """The loop. A subclass gives the tokens of a row, the weight of an item, and the loss of some rows.

    A *row* of a forward pass is one item, or several packed together. After every optimizer step there is a safe point: a
    requested stop saves there, and a resumed run goes on from there with the same results.

    Args:
        name: of the role, and of its folder: `actor`, `reward_model`.
        role: the boosted model with its optimizer.
        tokenizer: saved with the model; its pad token stands in padding, which no result depends on.
        items: the data to learn from; the same on every process.
        held_out: the data to evaluate on; may be empty.
        config: the run's settings.
        callbacks: hooks.
        save_dir: the run's folder; None = nothing is saved.
        tracker: where metrics go.
        run_state: identifies the run (plain JSON); a checkpoint with another is refused.

    Raises:
        UserError: no items, or a batch size that does not divide among the processes.
    """

    def __init__(
        self,
        name: str,
        role: Boosted,
        tokenizer: Any,
        items: Sequence[T],
        held_out: Sequence[T],
        config: SupervisedConfig,
        *,
        callbacks: Sequence[Callback] = (),
        save_dir: str | Path | None = None,
        tracker: Tracker | None = None,
        run_state: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(callbacks=callbacks, save_dir=save_dir, tracker=tracker)
        t = config.train
        if t.train_batch_size % self.world_size:
            raise UserError(
                f"--train_batch_size {t.train_batch_size} does not divide among {self.world_size} processes: give a "
                f"multiple of {self.world_size}"
            )
        self.name, self.role, self.config = name, role, config
        self.items, self.held_out = list(items), list(held_out)
        self.pad_id: int = tokenizer.pad_token_id or 0
        self.step_items = t.train_batch_size * t.accumulation_steps
        self.total_steps = total_steps(config, len(self.items))
        self.sampler = PromptSampler(len(self.items), self.step_items, t.seed)
        self.progress = Progress()
        self.checkpointer = Checkpointer(
            self.save_dir,
            {name: BoostedRole(role, tokenizer)},
            run_state or {},
            keep=config.ckpt.keep_checkpoints,
            merge=config.model.lora_merge,
        )

    @property
    def rows_done(self) -> int:
        return self.progress.optimizer_steps

    @property
    def place(self) -> str:
        return f"step {self.progress.optimizer_steps}"

    @property
    def result(self) -> Path | None:
        """The folder in which `fit` leaves the trained model."""
        whole = self.config.model.lora_merge or not self.role.unwrapped.has_adapter
        return self.save_dir and self.save_dir / self.name / ("modeling" if whole else "adapter")

    def fit(self, log_dir: str | None = None, use_wandb: bool = False) -> None:
        """Train until `total_steps` optimizer steps are done, counting those that a loaded checkpoint brought along.

        Args:
            log_dir: folder for TensorBoard, if given.
            use_wandb: log to Weights & Biases.

        Raises:
            Interrupted: after SIGINT or SIGTERM, at the next safe point, with a checkpoint saved.
        """
        self.track(LogConfig(log_dir=log_dir, use_wandb=use_wandb))
        with self._interrupt:
            self._call("on_fit_start")
            if self.progress.optimizer_steps == 0:
                self.unfinished = {}
            self._finish_row()
            self._start_clock()
            while self.progress.optimizer_steps < self.total_steps:
                self._train_step()
                self._end_step()
            self._finish()
            self._save_result()
            self._call("on_fit_end")

    def _train_step(self) -> None:
        """One optimizer step on this process's share of the next items."""
        enter_phase("update")
        self.sampler.counter = self.progress.optimizer_steps
        share = [self.items[i] for i in self.sampler.indices(self.rank, self.world_size)]
        size = self._total_weight(share)
        self.meter.add("lr", self.role.lr)
        passes = self._passes(share) if size else []  # in all processes alike: nothing to learn from, and so no step
        self.role.learn([partial(self._counted_loss, rows, size) for rows in passes])
        self._count_step(len(passes))
        self.progress.optimizer_steps += 1
        self.progress.samples += self.step_items

    def _count_step(self, passes: int) -> None:
        """Count an optimizer step of so many passes."""
        if not passes:
            return
        part = 1 / self.world_size
        self.meter.add("train/loss", 0.0, part)  # which came in shares
        self.meter.add_count("skipped_steps", part if self.role.skipped else 0.0)
        if not self.role.skipped:  # else there is no norm, and one step would hide those of all others
            self.meter.add("grad_norm", self.role.grad_norm)

    def _counted_loss(self, rows: Sequence[Sequence[T]], size: float) -> Tensor:
        loss = self._loss(rows, size, self.meter)
        self.meter.add("train/loss", loss.detach(), 0)
        return loss

    def _end_step(self) -> None:
        c, step = self.config, self.progress.optimizer_steps
        self._tick()
        self._call("on_step_end")
        last = step == self.total_steps
        metrics: dict[str, float] = {}
        if last or step % c.log.log_interval == 0:
            metrics = self._metrics()
            self._call("on_log", metrics)
        if last or (c.eval.eval_interval and step % c.eval.eval_interval == 0):
            self.unfinished = metrics
            self._finish_row()
        else:
            self._log(metrics)
        if c.ckpt.save_interval and step % c.ckpt.save_interval == 0 and not last:
            self.save_checkpoint()
        self._stop_if_asked()
        self._stop_if_diverged(self.role.skipped, c.train.max_skipped_steps)

    def _finish_row(self) -> None:
        """Evaluate, and write the row of metrics that waits for the evaluation, if there is one."""
        if self.unfinished is not None:
            metrics = self.unfinished | self._evaluate()
            self.unfinished = None
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
            self.tracker.log(p.optimizer_steps, {"epoch": p.samples / len(self.items), "samples": p.samples, **metrics})

    def _evaluate(self) -> dict[str, float]:
        """Held-out metrics."""
        if not self.held_out:
            return {}
        enter_phase("evaluation")
        metrics = self._held_out_metrics(self._measured(self.held_out))
        self._start_clock()  # evaluation is not training time
        self._call("on_evaluate_end", metrics)
        return metrics

    def _measured(self, items: Sequence[T]) -> dict[str, float]:
        """Means over the items, which are divided among the processes; the run may be stopped between two passes. Collective."""
        meter = Meter()
        passes = self._passes(items[self.rank :: self.world_size])
        for index, rows in enumerate(passes):
            self._stop_if_asked()
            with torch.no_grad():
                self._measure(rows, meter)
            self._call("on_evaluate_pass", index + 1, len(passes))
        return meter.means()

    def _passes(self, items: Sequence[T]) -> list[list[list[T]]]:
        """Items as rows, and rows as passes of similar length: the same number on every process, the last perhaps without rows.
        Collective."""
        t = self.config.train
        rows = self._rows(items)
        lengths = [self._row_tokens(row) for row in rows]
        most = max(1, t.train_batch_size // self.world_size)
        packs = getattr(self.role.unwrapped, "packs", False)
        ids = [self._row_ids(row) for row in rows] if packs else None
        passes = cut_on_all_ranks(lengths, most, self._device(), max_tokens=t.micro_batch_tokens, sequences=ids)
        return [[rows[i] for i in places] for places in passes]

    def _total_weight(self, items: Sequence[T]) -> float:
        """The divisor of the loss of an optimizer step: the weight of all its items, over all processes. Collective."""
        weight = torch.tensor(float(sum(map(self._weight, items))), dtype=torch.float64, device=self._device())
        return float(all_reduce_sum(weight))

    def _device(self) -> torch.device:
        return self.role.device

    @property
    def _checkpoint_name(self) -> str:
        return checkpoint_name(self.progress.optimizer_steps)

    def state_dict(self) -> dict[str, Any]:
        return {
            "progress": self.progress.state_dict(),
            "sampler": self.sampler.state_dict(),
            "unfinished": self.unfinished,
        }

    def own_state_dict(self) -> dict[str, Any]:
        return {"meter": self.meter.state_dict()}

    def _take_up(self, loaded: Loaded) -> None:
        """Restore the loop. With another number of processes, only metrics that were not yet written are lost."""
        self.sampler.load_state_dict(loaded.state["sampler"])
        self.progress.load_state_dict(loaded.state["progress"])
        self.unfinished = loaded.state["unfinished"]
        if loaded.own is not None:
            self.meter.load_state_dict(loaded.own["meter"])

    def _rows(self, items: Sequence[T]) -> list[list[T]]:
        """One row for each item, unless a subclass packs."""
        return [[item] for item in items]

    def _finish(self) -> None:
        """After the last step, before the result is saved."""

    @abstractmethod
    def _row_tokens(self, row: Sequence[T]) -> int:
        """Tokens that the model computes for a row by itself."""

    @abstractmethod
    def _row_ids(self, row: Sequence[T]) -> Sequence[int]:
        """The token ids that the row begins with, by which rows that begin alike are told."""

    @abstractmethod
    def _weight(self, item: T) -> float: ...

    @abstractmethod
    def _loss(self, rows: Sequence[Sequence[T]], size: float, meter: Meter) -> Tensor:
        """These rows' share of a loss that is divided by `size`. For no rows it is 0, but depends on the weights all the same:
        where weights are sharded, the backward pass is collective."""

    @abstractmethod
    def _measure(self, rows: Sequence[Sequence[T]], meter: Meter) -> None: ...

    @abstractmethod
    def _held_out_metrics(self, means: dict[str, float]) -> dict[str, float]: ...
