"""`OnlineTrainer`: collect, learn, report, save; again. What is collected and learned is a subclass's business."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from rlvr.boost.phases import board
from rlvr.errors import UserError
from rlvr.experience.experience import Experience
from rlvr.experience.maker import Collected
from rlvr.metrics import Meter
from rlvr.trackers.make import Wanted
from rlvr.tracking import Tracker
from rlvr.trainer.base import BaseTrainer
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.progress import Progress


@dataclass(frozen=True)
class Plan:
    """How long a run is: the first three arguments of `fit`."""

    num_episodes: int
    num_collect_steps: int
    num_update_steps: int


class OnlineTrainer(BaseTrainer):
    """The loop, its hooks, and when to save.

    Each episode collects `num_collect_steps` batches of experience and then passes over them `num_update_steps` times.
    After every collect step and every optimizer step there is a safe point: a requested stop saves there, and a
    resumed run goes on from there with the same results bit for bit.

    Args:
        callbacks: hooks.
        save_interval: episodes between checkpoints; 0 = only when interrupted and at the end.
        save_dir: the run's folder; None = nothing is saved.
        tracker: where metrics go.
        evaluator: gives held-out metrics, or None where it found `stop_asked`; called every `eval_interval` episodes (0 =
            before and after only).
    """

    def __init__(
        self,
        *,
        callbacks: Sequence[Callback] = (),
        save_interval: int = 0,
        save_dir: str | Path | None = None,
        tracker: Tracker | None = None,
        evaluator: Callable[[], dict[str, float] | None] | None = None,
        eval_interval: int = 0,
    ) -> None:
        super().__init__(callbacks=callbacks, save_dir=save_dir, tracker=tracker)
        self.save_interval, self.eval_interval = save_interval, eval_interval
        self.evaluator = evaluator
        self.progress = Progress()
        # Metrics of the last episode while its evaluation goes on; a stop in it must not lose them.
        self.unfinished: dict[str, float] | None = None
        self.seconds: dict[str, float] = {}
        self.plan = Plan(0, 0, 0)
        self.prompt_loader: Any = None
        self.pretrain_loader: Any = None
        self._ticked = 0.0

    @property
    def rows_done(self) -> int:
        return self.progress.episode

    @property
    def place(self) -> str:
        return f"episode {self.progress.episode}"

    def fit(
        self,
        num_episodes: int,
        num_collect_steps: int,
        num_update_steps: int,
        prompt_dataloader: Iterable[Any],
        pretrain_dataloader: Iterable[Any] | None = None,
        log_dir: str | None = None,
        use_wandb: bool = False,
    ) -> None:
        """Train until `num_episodes` episodes are done, counting those that a loaded checkpoint brought along.

        Args:
            num_episodes: iterations of collecting and learning.
            num_collect_steps: batches of prompts in each.
            num_update_steps: passes over the collected experience in each.
            prompt_dataloader: yields this process's share of each batch of prompts; cycled when it ends.
            pretrain_dataloader: yields batches for the ptx loss; cycled when it ends.
            log_dir: folder for TensorBoard, if given.
            use_wandb: log to Weights & Biases.

        Raises:
            Interrupted: after SIGINT or SIGTERM, at the next safe point, with a checkpoint saved.
            UserError: what the user gave does not fit together.
        """
        self.plan = Plan(num_episodes, num_collect_steps, num_update_steps)
        self.track(Wanted(log_dir, use_wandb))
        self._before_fit(prompt_dataloader, pretrain_dataloader)
        with self._interrupt:
            self._call("on_fit_start")
            if self.progress.episode == 0 and self.progress.at_episode_start:
                self._log(self._evaluate({}))
            elif self.unfinished is not None:
                self._close_episode(self._evaluate(self.unfinished))
            self._ticked = time.perf_counter()
            while self.progress.episode < num_episodes:
                self._run_episode()
            self._call("on_fit_end")
        self._after_fit()

    def _saved_before(self, error: UserError) -> UserError:
        """A mistake that shows only in the middle (a reward function that keeps failing) must not cost what was learned.
        The state must be that of a safe point.

        Alone only: with several processes the others don't know of the mistake, and would be waited for.
        """
        if self.world_size > 1 or self.save_dir is None or not self.progress.optimizer_steps:
            return error
        return UserError(
            f"{error}\nWhat was learned is saved in {self._save_checkpoint()}; go on from it with --resume"
        )

    def _run_episode(self) -> None:
        p = self.progress
        self._call("on_episode_start", p.episode)
        while not p.learning and p.collect_step < self.plan.num_collect_steps:
            self._collect()
            p.collect_step += 1
            self._safe_point()
        if not p.learning:
            self._begin_learning()
            p.learning = True
        while p.update_step < self.plan.num_update_steps:
            self._call("on_learn_epoch_start", p.update_step)
            self._learn()
            self._call("on_learn_epoch_end", p.update_step)
            p.update_step += 1
            p.mini_batch = 0
        self._end_episode()

    def _collect(self) -> None:
        self._call("on_make_experience_start")
        undo = self._before_collecting()
        try:
            collected = self._make_experience()
        except UserError as error:
            undo()
            raise self._saved_before(error) from error
        for name, seconds in collected.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._call("on_make_experience_end", collected)

    def _learn(self) -> None:
        """One pass over the buffer, from where the progress stands."""
        for batch in islice(self._mini_batches(self.progress.update_step), self.progress.mini_batch, None):
            board.enter("update")
            self._call("on_learn_batch_start")
            begin = time.perf_counter()
            self._training_step(batch)
            self.seconds["update"] = self.seconds.get("update", 0.0) + time.perf_counter() - begin
            self.progress.mini_batch += 1
            self.progress.optimizer_steps += 1
            self._call("on_learn_batch_end", batch)
            self._safe_point()

    def _end_episode(self) -> None:
        p = self.progress
        metrics = self._episode_metrics()
        self._tick()
        metrics |= {f"time/{name}": seconds for name, seconds in self.seconds.items()}
        metrics["time/episode"] = p.episode_seconds
        metrics["time/total"] = p.seconds
        p.end_episode()
        self.meter, self.seconds = Meter(), {}
        if p.episode == self.plan.num_episodes or (self.eval_interval and p.episode % self.eval_interval == 0):
            metrics = self._evaluate(metrics)
        self._close_episode(metrics)

    def _close_episode(self, metrics: dict[str, float]) -> None:
        p = self.progress
        self._log(metrics)
        self._call("on_episode_end", p.episode - 1, metrics)
        if self.save_interval and p.episode % self.save_interval == 0 and p.episode != self.plan.num_episodes:
            self._save_checkpoint()
        self._safe_point()

    def _evaluate(self, metrics: dict[str, float]) -> dict[str, float]:
        """The metrics of the newest episode with held-out ones. In the midst of that the run may be stopped."""
        if self.evaluator is None:
            self.unfinished = None
            return metrics
        self.unfinished = metrics
        board.enter("evaluation")
        self._call("on_evaluate_start")
        held_out = self.evaluator()
        self._ticked = time.perf_counter()  # evaluation is not training time
        if held_out is None:
            self._stop_if_asked()
        assert held_out is not None, "the evaluator gave up, and nobody had asked for a stop"
        self.unfinished = None
        self._call("on_evaluate_end", held_out)
        return metrics | held_out

    def _log(self, metrics: dict[str, float]) -> None:
        if metrics and self.is_main:
            self.tracker.log(self.progress.episode, {"episode": self.progress.samples, **metrics})

    def _safe_point(self) -> None:
        """Stop here if any process was asked to."""
        self._tick()
        if not self.progress.at_episode_start:
            self.progress.safe_point += 1
        self._stop_if_asked()

    def _tick(self) -> None:
        """Count the time since the last tick as training time."""
        now = time.perf_counter()
        self.progress.seconds += now - self._ticked
        self.progress.episode_seconds += now - self._ticked
        self._ticked = now

    @abstractmethod
    def _before_fit(self, prompt_dataloader: Iterable[Any], pretrain_dataloader: Iterable[Any] | None) -> None: ...

    @abstractmethod
    def _before_collecting(self) -> Callable[[], None]:
        """What puts back the state of now, if making experience fails."""

    @abstractmethod
    def _make_experience(self) -> Collected: ...

    @abstractmethod
    def _begin_learning(self) -> None: ...

    @abstractmethod
    def _mini_batches(self, epoch: int) -> Iterator[list[Experience]]: ...

    @abstractmethod
    def _training_step(self, batch: Sequence[Experience]) -> None: ...

    @abstractmethod
    def _episode_metrics(self) -> dict[str, float]: ...

    @abstractmethod
    def _after_fit(self) -> None: ...
