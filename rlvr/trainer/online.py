"""`OnlineTrainer`: collect, learn, report, save; again. The loop of PPO and its relatives, wherever the models are.

An episode has five phases: rollout; rewards and the divergence from the initial model; advantages; optimizer steps; metrics and
checkpoints. `rlvr.experience.maker` does the first three, `rlvr.trainer.ppo_update` the fourth, this file the last and the order
of them all.

The loop asks its maker for experience and its learner for optimizer steps. It does not know whether their models are in this
process (`rlvr.trainer.ppo`) or in Ray actors (`rlvr.ray.trainer`), and it holds no mathematics: no loss, no advantage, no
branch for a recipe.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from rlvr.boost.health import enter_phase
from rlvr.boost.process import all_reduce_sum, any_rank, gather_json
from rlvr.checkpoint.checkpointer import Checkpointer, Loaded, SavedPart, SavedRole
from rlvr.checkpoint.storage import checkpoint_name
from rlvr.config import Config, LogConfig
from rlvr.core.advantages import get_estimator
from rlvr.core.kl import adapted_kl_coef
from rlvr.data.batches import as_examples, as_prompts
from rlvr.data.examples import Example
from rlvr.data.prompts import PromptLoader
from rlvr.errors import UserError
from rlvr.experience.dynamic_sampling import collect_with_signal
from rlvr.experience.experience import Experience, ExperienceBuffer
from rlvr.experience.maker import BaseExperienceMaker, Collected
from rlvr.experience.metrics import summarise
from rlvr.memory.usage import memory_use
from rlvr.tracking.meter import Meter
from rlvr.tracking.tracker import Tracker
from rlvr.trainer.base import BaseTrainer, Progress
from rlvr.trainer.callbacks import Callback


@dataclass
class EpisodeProgress(Progress):
    """The loop's position, precise enough to stop after any collect step or optimizer step and go on there.

    Attributes:
        episode: finished episodes.
        collect_step: finished collect steps of the current episode.
        learning: true once the current episode's experience is complete and its advantages are whitened.
        update_step: finished passes over the buffer in the current episode.
        mini_batch: finished mini-batches of the current pass.
        safe_point: safe points passed in the current episode; part of the names of checkpoints within it.
        episode_seconds: time spent in training in the current episode.
    """

    episode: int = 0
    collect_step: int = 0
    learning: bool = False
    update_step: int = 0
    mini_batch: int = 0
    safe_point: int = 0
    episode_seconds: float = 0.0

    @property
    def at_episode_start(self) -> bool:
        return self.collect_step == 0 and not self.learning

    def end_episode(self) -> None:
        self.episode += 1
        self.collect_step = self.update_step = self.mini_batch = self.safe_point = 0
        self.learning = False
        self.episode_seconds = 0.0

    def add_seconds(self, seconds: float) -> None:
        super().add_seconds(seconds)
        self.episode_seconds += seconds


@dataclass(frozen=True)
class Plan:
    """The length of a run: the first three arguments of `fit`."""

    num_episodes: int
    num_collect_steps: int
    num_update_steps: int


class Learns(Protocol):
    """The roles that learn, wherever they are: `rlvr.trainer.ppo_update.Learner`, or groups of Ray actors.

    Attributes:
        has_critic: true if there is a critic apart from the actor.
        has_adapter: true if adapters learn instead of the whole actor.
        replicas: copies of the model, among which the samples of an optimizer step are divided; one for each process unless a
            plugin spreads a copy over several.
        device: holds the tensors of the loop's own collectives.
        saved_roles: the roles by name, for checkpoints.
        skipped: optimizer steps in a row that a role has skipped because its gradient was not finite; the most of any.
    """

    @property
    def has_critic(self) -> bool: ...
    @property
    def has_adapter(self) -> bool: ...
    @property
    def replicas(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def saved_roles(self) -> Mapping[str, SavedRole]: ...
    @property
    def skipped(self) -> int: ...

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over the replicas. Collective."""
        ...

    def pool(self, items: Sequence[Experience]) -> Sequence[Experience]:
        """The items of all processes that learn together, given this process's. Collective among them."""
        ...

    def step(
        self, batch: Sequence[Experience], meter: Meter, *, kl_coef: float, actor_learns: bool, ptx: Sequence[Example]
    ) -> None:
        """One optimizer step on one mini-batch. Collective."""
        ...

    def forget_moments(self) -> None:
        """Let the actor's optimizer begin anew."""
        ...


class OnlineTrainer(BaseTrainer):
    """The loop, its hooks, and when to save.

    Each episode collects `num_collect_steps` batches of experience and then passes over them `num_update_steps` times.
    After every collect step and every optimizer step there is a safe point: a requested stop saves there, and a
    resumed run goes on from there with the same results bit for bit.

    Args:
        config: the run's settings.
        maker: makes experience.
        learner: takes optimizer steps.
        tokenizer: of the policy.
        callbacks: hooks.
        save_dir: the run's folder; None = nothing is saved.
        tracker: where metrics go.
        evaluator: gives held-out metrics, or None if it gave up because `stop_asked`. Called before and after training and
            every `eval_interval` episodes.
        run_state: identifies the run (plain JSON); a checkpoint with another is refused.
    """

    progress: EpisodeProgress

    def __init__(
        self,
        config: Config,
        maker: BaseExperienceMaker,
        learner: Learns,
        tokenizer: Any,
        *,
        callbacks: Sequence[Callback] = (),
        save_dir: str | Path | None = None,
        tracker: Tracker | None = None,
        evaluator: Callable[[], dict[str, float] | None] | None = None,
        run_state: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(callbacks=callbacks, save_dir=save_dir, tracker=tracker)
        self.config, self.maker, self.learner, self.tokenizer = config, maker, learner, tokenizer
        self.evaluator = evaluator
        self.save_interval, self.eval_interval = config.ckpt.save_interval, config.eval.eval_interval
        self.progress = EpisodeProgress()
        self.buffer = ExperienceBuffer(config.train.buffer_limit)
        whiten = config.algo.whiten_advantages
        self.whiten_advantages = get_estimator(config.algo.estimator).whiten if whiten is None else whiten
        self.checkpointer = Checkpointer(
            self.save_dir,
            learner.saved_roles,
            run_state or {},
            others=self._moving_reference(),
            replicas=learner.replicas,
            keep=config.ckpt.keep_checkpoints,
            merge=config.model.lora_merge,
            is_main=self.is_main,
        )
        self.seconds: dict[str, float] = {}
        self.plan = Plan(0, 0, 0)
        self.prompt_loader: Any = None
        self.pretrain_loader: Any = None
        self._prompts: Iterator[Any] = iter(())
        self._ptx: Iterator[Any] = iter(())
        # From a loaded checkpoint: positions of the loaders, which the trainer gets only with `fit`.
        self._loaders: Mapping[str, Any] = {}
        # Prompts that dynamic sampling has drawn and not needed yet; those of a loaded checkpoint by their places in the loader.
        self.unsampled: list[Any] = []
        self._unsampled: Sequence[int] = ()

    @property
    def rows_done(self) -> int:
        return self.progress.episode

    @property
    def place(self) -> str:
        return f"episode {self.progress.episode}"

    @property
    def kl_coef(self) -> float:
        """Present weight of the divergence; adapted after each episode where there is a `kl_target`."""
        return self.maker.kl_coef

    @kl_coef.setter
    def kl_coef(self, value: float) -> None:
        self.maker.kl_coef = value

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
            prompt_dataloader: yields this process's share of each batch of prompts; cycled when it ends. A batch is a list of
                `Prompt`s, or a dictionary of padded tensors as ColossalChat's loaders give it (`rlvr.data.batches`).
            pretrain_dataloader: yields batches for the ptx loss; cycled when it ends.
            log_dir: folder for TensorBoard, if given.
            use_wandb: log to Weights & Biases.

        Raises:
            Interrupted: after SIGINT or SIGTERM, at the next safe point, with a checkpoint saved.
            UserError: what the user gave does not fit together.
        """
        self.track(LogConfig(log_dir=log_dir, use_wandb=use_wandb))
        self.prepare(Plan(num_episodes, num_collect_steps, num_update_steps), prompt_dataloader, pretrain_dataloader)
        with self._interrupt:
            self._call("on_fit_start")
            # Evaluate before training; or finish the evaluation in which the run was stopped.
            if self.progress.episode == 0 and self.progress.at_episode_start:
                if held_out := self._evaluate({}):
                    self._log({"episode": float(self.progress.samples), **held_out})
            elif self.unfinished is not None:
                self._close_episode(self._evaluate(self.unfinished))
            self._start_clock()
            while self.progress.episode < num_episodes:
                self._run_episode()
            self._call("on_fit_end")
        self._save_result()

    def prepare(
        self, plan: Plan, prompt_dataloader: Iterable[Any], pretrain_dataloader: Iterable[Any] | None = None
    ) -> None:
        """Take what `fit` takes, and begin no episode.

        Raises:
            UserError: what the user gave does not fit together.
        """
        self.plan = plan
        self._take_loaders(prompt_dataloader, pretrain_dataloader)

    def learn_again(
        self, items: Sequence[Experience], meter: Mapping[str, Any], kl_coef: float, *, whitened: bool
    ) -> None:
        """The next episode with experience that was collected before (`rlvr.replay`): its optimizer steps, and its end. After
        `prepare`. Collective.

        Args:
            items: of this process.
            meter: state of its meter when learning began, with the metrics of collecting.
            kl_coef: weight of the divergence in this episode.
            whitened: the advantages are whitened already, where the settings ask for it.
        """
        store = "cpu" if self.config.train.buffer_cpu_offload else self._device()
        self.buffer.items = [item.to(store) for item in items]
        self.meter.load_state_dict(meter)
        self.kl_coef = kl_coef
        self.progress.collect_step, self.progress.learning = self.plan.num_collect_steps, whitened
        self._start_clock()
        self._run_episode()

    def _take_loaders(self, prompt_dataloader: Iterable[Any], pretrain_dataloader: Iterable[Any] | None) -> None:
        ptx_coef = self.config.algo.ptx_coef
        if ptx_coef and pretrain_dataloader is None:
            raise UserError(f"ptx_coef {ptx_coef} needs ptx data: give --ptx_dataset, or --ptx_coef 0")
        self.prompt_loader, self.pretrain_loader = prompt_dataloader, pretrain_dataloader
        for name, loader in self._named_loaders():
            if self._loaders.get(name) is not None and hasattr(loader, "load_state_dict"):
                loader.load_state_dict(self._loaders[name])
        self._loaders = {}
        # Without places (the checkpoint is of another number of processes) they are left out of this pass over the data.
        self.unsampled = [prompt_dataloader.items[place] for place in self._unsampled]  # type: ignore[attr-defined]
        self._unsampled = ()
        self._prompts = map(partial(as_prompts, tokenizer=self.tokenizer), _cycle(prompt_dataloader))
        self._ptx = map(as_examples, _cycle(pretrain_dataloader))

    def _named_loaders(self) -> list[tuple[str, Any]]:
        return [("prompts", self.prompt_loader), ("pretrain", self.pretrain_loader)]

    def _run_episode(self) -> None:
        """The rest of the current episode, from where the progress stands: all of it, unless the run was resumed within."""
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

    # Collecting: phases 1 to 3.

    def _collect(self) -> None:
        self._call("on_make_experience_start")
        undo = self._before_collecting()  # a failed collect step leaves the state of the safe point before it
        try:
            collected = self._make_experience()
        except UserError as error:
            undo()
            raise self._saved_before(error) from error
        for name, seconds in collected.seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._call("on_make_experience_end", collected)

    def _before_collecting(self) -> Callable[[], None]:
        """Returns a function that restores the present state, in case making experience fails."""
        everything: list[Any] = [self.meter, self.prompt_loader, self.maker.reward_model]
        parts = [part for part in everything if hasattr(part, "state_dict")]
        # Copies, as a state may share its containers with the part that goes on changing them.
        states = [(part, copy.deepcopy(part.state_dict())) for part in parts]
        unsampled = list(self.unsampled)

        def undo() -> None:
            self.unsampled = unsampled
            for part, state in states:
                part.load_state_dict(state)

        return undo

    def _saved_before(self, error: UserError) -> UserError:
        """The error, after a checkpoint was saved: a mistake that shows late (a reward function that fails at some sample) must
        not cost what was learned. The state must be that of a safe point.

        Only in a run of one process: saving is collective, and the others don't know of the mistake.
        """
        if self.world_size > 1 or self.save_dir is None or not self.progress.optimizer_steps:
            return error
        return UserError(f"{error}\nWhat was learned is saved in {self.save_checkpoint()}; go on from it with --resume")

    def _make_experience(self) -> Collected:
        """Phases 1 to 3 for this process's share of the next batch of prompts."""
        c = self.config
        place = self._place_of(self.progress.episode, self.progress.collect_step)
        options = {"monte_carlo": self.pretrains_values}
        prompts = self._prompts_of(*place)
        if c.algo.dynamic_sampling:
            more = partial(next, self._prompts)
            collected, sampled = collect_with_signal(
                self.maker, prompts, self.unsampled, more, self._any_rank, self.meter, *place, **options
            )
        else:
            collected, sampled = self.maker.make_experience(prompts, self.meter, *place, **options), len(prompts)
        # Sampling was divided among all processes, learning is among replicas: those of one replica learn the same samples.
        if isinstance(self.prompt_loader, PromptLoader) and self.prompt_loader.sampler.learns:
            self.prompt_loader.observe(gather_json(collected.solved))
        store = "cpu" if c.train.buffer_cpu_offload else self._device()
        self.buffer.extend([item.to(store) for item in self.learner.pool(collected.experience)])
        self.progress.samples += int(all_reduce_sum(torch.tensor(float(sampled), device=self._device())))
        return collected

    def _place_of(self, episode: int, collect_step: int) -> tuple[int, int, int]:
        """The place in the run that names the random numbers of a collect step."""
        return self.config.train.seed, episode, collect_step

    def _prompts_of(self, *place: int) -> Sequence[Any]:
        """This process's share of the prompts of a collect step, each `num_generations` times in a row."""
        return self._draw_prompts()

    def _draw_prompts(self) -> Sequence[Any]:
        """The next ones: first those that dynamic sampling has drawn and not needed."""
        share = next(self._prompts)
        waiting = [*self.unsampled, *share]
        self.unsampled = waiting[len(share) :]
        return [p for p in waiting[: len(share)] for _ in range(self.config.rollout.num_generations)]

    def _any_rank(self, flag: bool) -> bool:
        return any_rank(flag, self._device())

    # Learning: phase 4.

    @property
    def pretrains_values(self) -> bool:
        """True in the first episodes if they only fit the critic to plain returns while the policy stays as it is (VAPO)."""
        return self.progress.episode < self.config.algo.value_pretraining_episodes

    @property
    def _actor_learns(self) -> bool:
        """True if the coming optimizer step moves the actor too. Read off shared counters, so the same on all ranks."""
        warmed_up = self.progress.optimizer_steps >= self.config.algo.critic_warmup_steps
        return warmed_up and not self.pretrains_values

    @property
    def _local_mini_batch(self) -> int:
        """This replica's samples of an optimizer step."""
        t = self.config.train
        return max(1, t.train_batch_size // self.learner.replicas) * t.accumulation_steps

    def _begin_learning(self) -> None:
        """Check that the episode divides into optimizer steps, and whiten its advantages if that is asked for."""
        replicas = self.learner.replicas
        if len(self.buffer) % self._local_mini_batch:
            raise UserError(
                f"the {len(self.buffer) * replicas} samples of an episode don't divide into optimizer steps of "
                f"{self._local_mini_batch * replicas} samples (train_batch_size x accumulation_steps); choose sizes "
                "that do"
            )
        if self.whiten_advantages:
            # The buffer may lie in main memory; collectives run on the device.
            self.buffer.whiten_advantages(lambda x: self.learner.add_up(x.to(self._device())).to(x.device))

    def _learn(self) -> None:
        """One pass over the buffer, from where the progress stands."""
        for batch in islice(self.mini_batches(), self.progress.mini_batch, None):
            enter_phase("update")
            self._call("on_learn_batch_start")
            begin = time.perf_counter()
            self._training_step(batch)
            self.seconds["update"] = self.seconds.get("update", 0.0) + time.perf_counter() - begin
            self.progress.mini_batch += 1
            self.progress.optimizer_steps += 1
            self._call("on_learn_batch_end", batch)
            self._safe_point()
            self._stop_if_diverged(self.learner.skipped, self.config.train.max_skipped_steps)

    def mini_batches(self) -> Iterator[list[Experience]]:
        """The mini-batches of the present pass over the buffer, from its first."""
        p, t = self.progress, self.config.train
        return self.buffer.mini_batches(
            self._local_mini_batch, p.update_step, t.seed, p.episode, sample=t.sample_buffer
        )

    def _training_step(self, batch: Sequence[Experience]) -> None:
        """One optimizer step of actor and critic on one mini-batch."""
        actor_learns = self._actor_learns
        # Steps of the critic alone use up no ptx rows.
        ptx = next(self._ptx) if actor_learns and self.config.algo.ptx_coef else ()
        self.learner.step(batch, self.meter, kl_coef=self.kl_coef, actor_learns=actor_learns, ptx=ptx)

    # Metrics, evaluation, checkpoints: phase 5.

    def _end_episode(self) -> None:
        p = self.progress
        metrics = {"episode": float(p.samples), **self._episode_metrics()}
        self._tick()  # before the times are read
        metrics |= {f"time/{name}": seconds for name, seconds in self.seconds.items()}
        metrics["time/episode"] = p.episode_seconds
        metrics["time/total"] = p.seconds
        p.end_episode()  # before the evaluation: a run that is stopped there has finished the episode
        self._move_reference()
        self.meter, self.seconds = Meter(), {}
        if p.episode == self.plan.num_episodes or (self.eval_interval and p.episode % self.eval_interval == 0):
            metrics = self._evaluate(metrics)
        self._close_episode(metrics)

    def _move_reference(self) -> None:
        """Let the reference follow the actor, if its turn has come. Collective.

        ProRL (Liu et al. 2025, arXiv:2505.24864): the reference becomes a snapshot of the policy, and the optimizer's
        state is begun anew, so that training can go on where the divergence would hold it back. A moving average instead (a share
        below 1) is that of TR-DPO (Gorbatovski et al. 2024, arXiv:2404.09656), and TRL's `sync_ref_model`.
        """
        a = self.config.algo
        if not a.reference_reset_interval or self.progress.episode % a.reference_reset_interval:
            return
        self.maker.move_reference(a.reference_mix)
        if a.reference_mix == 1:
            self.learner.forget_moments()

    def _moving_reference(self) -> Mapping[str, SavedPart]:
        """The reference, if it follows the actor and so is a part of checkpoints."""
        reference = self.maker.saved_reference if self.config.algo.reference_reset_interval else None
        return {} if reference is None else {"reference": reference}

    def _episode_metrics(self) -> dict[str, float]:
        """The episode's metrics over all processes. Empties the buffer and adapts the KL coefficient. Collective."""
        self.meter.add_peaks(memory_use())
        metrics = summarise(self.meter.means())
        a, samples = self.config.algo, len(self.buffer) * self.learner.replicas
        self.buffer.clear()
        if isinstance(self.prompt_loader, PromptLoader):
            metrics |= self.prompt_loader.sampler.metrics()
        if a.kl_target is not None:
            metrics["objective/kl_coef"] = self.kl_coef
            if self._actor_learns:  # while the policy stands still, its divergence says nothing of the coefficient
                kl = metrics["objective/kl"]
                self.kl_coef = adapted_kl_coef(self.kl_coef, kl, a.kl_target, samples, a.kl_horizon)
        return metrics

    def _close_episode(self, metrics: dict[str, float]) -> None:
        """Log the episode, and save if its turn has come. (After the last one `fit` saves.)"""
        p = self.progress
        self._log(metrics)
        self._call("on_episode_end", p.episode - 1, metrics)
        if self.save_interval and p.episode % self.save_interval == 0 and p.episode != self.plan.num_episodes:
            self.save_checkpoint()
        self._safe_point()

    def _evaluate(self, metrics: dict[str, float]) -> dict[str, float]:
        """The newest episode's metrics, with held-out ones added. The run may be stopped during the evaluation."""
        if self.evaluator is None:
            self.unfinished = None
            return metrics
        self.unfinished = metrics
        enter_phase("evaluation")
        self._call("on_evaluate_start")
        held_out = self.evaluator()
        self._start_clock()  # evaluation is not training time
        if held_out is None:
            self._stop_if_asked()  # raises
        assert held_out is not None, "the evaluator gave up, and nobody had asked for a stop"
        self.unfinished = None
        self._call("on_evaluate_end", held_out)
        return metrics | held_out

    def _log(self, metrics: dict[str, float]) -> None:
        if self.is_main:
            self.tracker.log(self.progress.episode, metrics)

    def _safe_point(self) -> None:
        """Stop here if any process was asked to."""
        self._tick()
        if not self.progress.at_episode_start:
            self.progress.safe_point += 1
        self._stop_if_asked()

    @property
    def _checkpoint_name(self) -> str:
        return checkpoint_name(self.progress.episode, self.progress.safe_point)

    def state_dict(self) -> dict[str, Any]:
        return {
            "progress": self.progress.state_dict(),
            "unfinished": self.unfinished,
            "kl_coef": self.kl_coef,
            "reward_model": _state_of(self.maker.reward_model),
            "loaders": {name: _state_of(loader) for name, loader in self._named_loaders()},
        }

    def own_state_dict(self) -> dict[str, Any]:
        return {
            "buffer": self.buffer.state_dict(),
            "meter": self.meter.state_dict(),
            "seconds": dict(self.seconds),
            "unsampled": self._places_of_unsampled(),
        }

    def _places_of_unsampled(self) -> list[int]:
        """Where the loader has them. One that can't be resumed has no items, and what it gave is not asked for again."""
        if not self.unsampled or not hasattr(self.prompt_loader, "items"):
            return []
        places = {id(prompt): place for place, prompt in enumerate(self.prompt_loader.items)}
        return [places[id(prompt)] for prompt in self.unsampled]

    def _take_up(self, loaded: Loaded) -> None:
        """Restore the loop. Loaders follow in `fit`, which gets them; an initial model that stays is never loaded from a checkpoint
        (pitfall A35)."""
        state, own = loaded.state, loaded.own
        in_episode = state["progress"]["collect_step"] or state["progress"]["learning"]
        # Without the processes' own states the buffer is lost. Between episodes it is empty.
        if own is None and in_episode:
            raise UserError(
                f"{loaded.path} was saved in the middle of an episode by {loaded.world_size} processes with {loaded.replicas} "
                f"copies of the model; resume it with as many (now: {self.world_size} with {self.learner.replicas}), or delete it to "
                "go on from the checkpoint before"
            )
        self.progress.load_state_dict(state["progress"])
        self.unfinished = state["unfinished"]
        self.kl_coef = state["kl_coef"]
        if state["reward_model"] and hasattr(self.maker.reward_model, "load_state_dict"):
            self.maker.reward_model.load_state_dict(state["reward_model"])
        self._loaders = {name: state["loaders"][name] for name, _ in self._named_loaders()}
        if own is not None:
            self.buffer.load_state_dict(own["buffer"])
            self.meter.load_state_dict(own["meter"])
            self.seconds = dict(own["seconds"])
            self._unsampled = own.get("unsampled", ())

    def _device(self) -> torch.device:
        return self.learner.device


def _cycle(loader: Iterable[Any] | None) -> Iterator[Any]:
    while loader is not None:
        yield from loader


def _state_of(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else None
