"""`PPOLoop`: the episodes of PPO and its relatives, whether the models are in this process or elsewhere."""

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlvr.boost.process import all_reduce_sum, any_rank
from rlvr.boost.use import memory_use
from rlvr.core.kl import adapted_kl_coef
from rlvr.errors import UserError
from rlvr.experience.buffer import ExperienceBuffer
from rlvr.experience.dynamic import collect_with_signal
from rlvr.experience.experience import Experience
from rlvr.experience.maker import BaseExperienceMaker, Collected
from rlvr.trainer.online import OnlineTrainer
from rlvr.trainer.settings import PPOSettings
from rlvr.trainer.summary import summarise
from rlvr.trainer.weights import PPOCheckpointer


class PPOLoop(OnlineTrainer):
    """What to collect, when to learn, what to report and to save. A subclass sets the attributes and takes the steps.

    Attributes:
        settings: of learning; the KL coefficient in them moves.
        maker: makes experience.
        buffer: this process's experience of the episode.
        seed: of sampling and mini-batch order.
        num_generations: responses to each prompt.
        train_batch_size: most samples in one forward and backward pass, over all processes.
        accumulation_steps: an optimizer step takes so many times `train_batch_size` samples.
        sample_buffer: draw mini-batches with replacement.
        buffer_cpu_offload: keep experience in main memory.
        whiten_advantages: normalise advantages over all response tokens of the episode.
        tokenizer: of the policy.
    """

    settings: PPOSettings
    maker: BaseExperienceMaker
    buffer: ExperienceBuffer
    seed: int
    num_generations: int
    train_batch_size: int
    accumulation_steps: int
    sample_buffer: bool
    buffer_cpu_offload: bool
    whiten_advantages: bool
    tokenizer: Any
    _checkpointer: PPOCheckpointer
    _prompts: Iterator[Any] = iter(())
    _ptx: Iterator[Any] = iter(())

    @property
    @abstractmethod
    def has_critic(self) -> bool:
        """Whether there is a critic of its own."""

    @property
    @abstractmethod
    def replicas(self) -> int:
        """Among how many the samples of an optimizer step are divided: the processes, where each learns by itself."""

    @abstractmethod
    def _add_up(self, values: Tensor) -> Tensor:
        """The sum over the replicas. Collective."""

    @abstractmethod
    def _pool(self, items: Sequence[Experience]) -> Sequence[Experience]:
        """What the processes that learn together have collected. Collective among them."""

    @property
    @abstractmethod
    def has_adapter(self) -> bool:
        """Whether adapters learn in place of the whole actor."""

    @property
    def kl_coef(self) -> float:
        """Weight of the divergence now; it moves where there is a `kl_target`."""
        return self.settings.kl_coef

    @kl_coef.setter
    def kl_coef(self, value: float) -> None:
        self.settings = replace(self.settings, kl_coef=value)
        self.maker.settings = replace(self.maker.settings, kl_coef=value)

    def load_checkpoint(self, path: str | Path) -> None:
        """Go on from a checkpoint: the next `fit` gives what the uninterrupted run would have given, bit for bit.

        Loader positions are taken over when `fit` gets its loaders. The initial model is not touched (pitfall A35).

        Raises:
            UserError: the checkpoint is damaged or belongs to another run; the message says which.
        """
        self._checkpointer.load(Path(path))

    def _before_fit(self, prompt_dataloader: Iterable[Any], pretrain_dataloader: Iterable[Any] | None) -> None:
        if self.settings.ptx_coef and pretrain_dataloader is None:
            raise UserError(f"ptx_coef {self.settings.ptx_coef} needs ptx data: give --ptx_dataset, or --ptx_coef 0")
        self.prompt_loader, self.pretrain_loader = prompt_dataloader, pretrain_dataloader
        self._checkpointer.restore_loaders()
        self._prompts, self._ptx = _cycle(prompt_dataloader), _cycle(pretrain_dataloader)

    def _before_collecting(self) -> Callable[[], None]:
        everything: list[Any] = [self.meter, self.prompt_loader, self.maker.reward_model]
        parts = [part for part in everything if hasattr(part, "state_dict")]
        states = [(part, copy.deepcopy(part.state_dict())) for part in parts]

        def undo() -> None:
            for part, state in states:
                part.load_state_dict(state)

        return undo

    def _make_experience(self) -> Collected:
        """Phases 1 to 3 for this process's share of the next batch of prompts."""
        share = self._next_prompts()
        place = (self.seed, self.progress.episode, self.progress.collect_step)
        options = {"monte_carlo": self._pretrains_values}
        if self.maker.settings.dynamic_sampling:
            collected, sampled = collect_with_signal(
                self.maker, share, self._next_prompts, self._any_rank, self.meter, *place, **options
            )
        else:
            prompts = [prompt for prompt in share for _ in range(self.num_generations)]
            collected, sampled = self.maker.make_experience(prompts, self.meter, *place, **options), len(prompts)
        store = "cpu" if self.buffer_cpu_offload else self._device()
        self.buffer.extend([item.to(store) for item in self._pool(collected.experience)])
        self.progress.samples += int(all_reduce_sum(torch.tensor(float(sampled), device=self._device())))
        return collected

    def _next_prompts(self) -> Sequence[Any]:
        return next(self._prompts)

    def _any_rank(self, flag: bool) -> bool:
        return any_rank(flag, self._device())

    @property
    def _pretrains_values(self) -> bool:
        """Whether this episode only fits the critic to plain returns, with the policy as it is (VAPO)."""
        return self.progress.episode < self.settings.value_pretraining_episodes

    @property
    def _actor_learns(self) -> bool:
        """Whether the coming optimizer step moves the actor too; the same on all ranks."""
        return not self._pretrains_values and self.progress.optimizer_steps >= self.settings.critic_warmup_steps

    def _begin_learning(self) -> None:
        if len(self.buffer) % self._local_mini_batch:
            raise UserError(
                f"the {len(self.buffer) * self.replicas} samples of an episode don't divide into optimizer steps of "
                f"{self._local_mini_batch * self.replicas} samples (train_batch_size x accumulation_steps); choose sizes "
                "that do"
            )
        if self.whiten_advantages:
            self.buffer.whiten_advantages(lambda x: self._add_up(x.to(self._device())).to(x.device))

    @property
    def _local_train_batch(self) -> int:
        return max(1, self.train_batch_size // self.replicas)

    @property
    def _local_mini_batch(self) -> int:
        return self._local_train_batch * self.accumulation_steps

    def _mini_batches(self, epoch: int) -> Iterator[list[Experience]]:
        place = (self.seed, self.progress.episode)
        return self.buffer.mini_batches(self._local_mini_batch, epoch, *place, sample=self.sample_buffer)

    def _episode_metrics(self) -> dict[str, float]:
        """Phase 5: the episode's metrics over all processes; the buffer is done with, the KL coefficient moves on."""
        self.meter.add_peaks(memory_use())
        metrics = summarise(self.meter.means())
        s, samples = self.settings, len(self.buffer) * self.replicas
        self.buffer.clear()
        if s.kl_target is not None:
            metrics["objective/kl_coef"] = self.kl_coef
            if self._actor_learns:
                self.kl_coef = adapted_kl_coef(
                    self.kl_coef, metrics["objective/kl"], s.kl_target, samples, s.kl_horizon
                )
        return metrics

    def _save_checkpoint(self) -> Path | None:
        return self._checkpointer.save() if self.save_dir is not None else None

    def _after_fit(self) -> None:
        if self.save_dir is not None:
            self._checkpointer.save()
            self._checkpointer.export()


def _cycle(loader: Iterable[Any] | None) -> Iterator[Any]:
    while loader is not None:
        yield from loader
