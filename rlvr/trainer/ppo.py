"""`PPOTrainer`: clipped PPO and its relatives with and without a critic, for rule rewards and neural reward models alike.

One iteration has five phases: rollout, rewards with the divergence from the initial model, advantages (these three make
experience, in `rlvr.experience`), optimisation (`rlvr.trainer.learning`), and metrics with checkpoints
(`rlvr.trainer.ppo_loop`, the loop that does not ask where the models are). Here they are all in this process.
Source: Schulman et al., "Proximal Policy Optimization Algorithms", 2017; Ouyang et al., "InstructGPT", 2022.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.boost.boosted import Boosted
from rlvr.conversation import Conversation
from rlvr.core.losses import StepSize
from rlvr.errors import UserError
from rlvr.experience.buffer import ExperienceBuffer
from rlvr.experience.experience import Experience
from rlvr.experience.maker import NaiveExperienceMaker, SampleScorer
from rlvr.experience.pooling import pool
from rlvr.experience.settings import ExperienceSettings
from rlvr.metrics import Meter
from rlvr.models.actor import Actor
from rlvr.models.batch import SequenceBatch
from rlvr.models.critic import Critic
from rlvr.models.reward_model import RewardModel
from rlvr.rollout.engine import Engine
from rlvr.rollout.make import make_engine
from rlvr.trainer.arguments import (
    as_actor,
    as_scorer,
    choose_estimator,
    make_reference,
    make_sampling,
    refuse,
    refuse_sampled,
)
from rlvr.trainer.learning import cut_into_micro_batches, positive_size, ptx_step, step_size, train_actor, train_critic
from rlvr.trainer.ppo_loop import PPOLoop
from rlvr.trainer.settings import PPOSettings
from rlvr.trainer.weights import PPOCheckpointer

if TYPE_CHECKING:
    from colossalai.booster import Booster
    from colossalai.cluster import DistCoordinator

    from rlvr.trainer.callbacks import Callback


class PPOTrainer(PPOLoop):
    """PPO over ColossalAI Boosters. The first 31 arguments are ColossalChat's, with its names.

    Args:
        actor_booster, critic_booster: one Booster for each role.
        actor: the policy: a transformers causal LM or an `Actor`, or an `Actor` that `actor_booster` has boosted.
        critic: a `Critic`, boosted or not. None (with its Booster and optimizer) for estimators that read no values, and
            for an actor that gives them itself (`ActorWithValues`).
        reward_model: scores responses; an `RLVRRewardModel` (or anything with its `begin` method), a `RewardModel`, or a
            transformers sequence classifier with one label that reads the policy's tokens.
        initial_model: frozen policy that the divergence is measured from. None is enough for an actor with LoRA adapters
            (it is the actor with its adapter off), else it needs `kl_coef` 0.
        actor_optim, critic_optim: optimizers over the roles' parameters (boosted together with them).
        actor_lr_scheduler, critic_lr_scheduler: stepped once for each optimizer step; None = constant.
        tokenizer: of the policy.
        kl_coef: weight of the divergence from `initial_model`; 0 skips its forward passes.
        ptx_coef: weight of the language-modelling loss: `policy loss + ptx_coef * ptx loss`. (ColossalChat documents
            0.9 and scales the policy loss by what is left; 0 keeps plain PPO.)
        train_batch_size: most samples in one forward and backward pass, over all processes.
        buffer_limit: most samples in this process's buffer; 0 = no limit.
        buffer_cpu_offload: keep experience in main memory.
        eps_clip: clip range of the ratio.
        vf_coef: weight of the value loss.
        value_clip: clip range of the value's change; None = off.
        sample_buffer: draw mini-batches with replacement.
        dataloader_pin_memory: pin batches on their way to a GPU.
        offload_inference_models: keep the initial model and the reward model in main memory while they don't infer.
        apply_loss_mask: must be true: a loss over padding is wrong.
        accumulation_steps: an optimizer step takes so many times `train_batch_size` samples.
        save_interval: episodes between checkpoints; 0 = only when interrupted and at the end.
        save_dir: the run's folder; None = nothing is saved.
        use_tp: true only with an actor_booster whose plugin has tensor parallelism; nothing else depends on it.
        coordinator: ColossalAI's; decides which process writes. By default rank 0.
        callbacks: hooks.
        conversation: template bound to the tokenizer: its tags go to the reward functions, its stops to the engine.
        engine: samples responses; by default transformers' `generate`.
        seed: of sampling and mini-batch order.
        num_generations: responses to each prompt; they stay together (pitfall A28).
        whiten_advantages: normalise advantages over all response tokens of the episode; None = as the estimator means it.
        settings: further settings of the optimizer step, by their names in `PPOSettings`.
        experience_settings: further settings of making experience, by their names in `ExperienceSettings`.
        run_state: what the run is (its configuration); a checkpoint with another is refused.
        keep_checkpoints: how many checkpoints stay.
        lora_merge: write whole models at the end, with LoRA adapters merged, and not only the adapters.
        grad_clip: norm to which gradients are clipped; must be what the Boosters' plugins were made with.
        precision: "bf16" runs forward passes under autocast where the plugin does not cast the model.
        online: arguments of `OnlineTrainer` (tracker, evaluator, eval_interval).
        generate_kwargs: `max_new_tokens`, `temperature`, `top_k`, `top_p`, `batch_size`, `stop_ids`, `stop_strings`.

    Raises:
        UserError: arguments that don't go together; the message says which.
    """

    def __init__(
        self,
        actor_booster: "Booster",
        critic_booster: "Booster | None",
        actor: PreTrainedModel | Actor,
        critic: Critic | None,
        reward_model: SampleScorer | RewardModel | PreTrainedModel,
        initial_model: PreTrainedModel | Actor | None,
        actor_optim: Optimizer,
        critic_optim: Optimizer | None,
        actor_lr_scheduler: LRScheduler | None,
        critic_lr_scheduler: LRScheduler | None,
        tokenizer: PreTrainedTokenizerBase,
        kl_coef: float = 0.1,
        ptx_coef: float = 0.0,
        train_batch_size: int = 8,
        buffer_limit: int = 0,
        buffer_cpu_offload: bool = True,
        eps_clip: float = 0.2,
        vf_coef: float = 1.0,
        value_clip: float | None = 0.2,
        sample_buffer: bool = False,
        dataloader_pin_memory: bool = True,
        offload_inference_models: bool = True,
        apply_loss_mask: bool = True,
        accumulation_steps: int = 1,
        save_interval: int = 0,
        save_dir: str | Path | None = None,
        use_tp: bool = False,
        coordinator: "DistCoordinator | None" = None,
        callbacks: "Sequence[Callback]" = (),
        *,
        conversation: Conversation | None = None,
        engine: Engine | None = None,
        seed: int = 0,
        num_generations: int = 1,
        settings: Mapping[str, Any] | None = None,
        experience_settings: Mapping[str, Any] | None = None,
        whiten_advantages: bool | None = None,
        run_state: Mapping[str, Any] | None = None,
        keep_checkpoints: int = 2,
        lora_merge: bool = True,
        grad_clip: float = 1.0,
        precision: str = "fp32",
        online: Mapping[str, Any] | None = None,
        **generate_kwargs: Any,
    ) -> None:
        super().__init__(callbacks=callbacks, save_interval=save_interval, save_dir=save_dir, **(online or {}))
        refuse(apply_loss_mask, use_tp, actor_booster)
        of_experience = dict(experience_settings or {})
        policy = as_actor(actor)
        estimator = choose_estimator(of_experience.get("estimator", "gae"), policy, critic, num_generations)
        refuse_sampled(policy, of_experience)
        self.coordinator = coordinator
        self.train_batch_size, self.accumulation_steps = train_batch_size, accumulation_steps
        self.sample_buffer, self.buffer_cpu_offload = sample_buffer, buffer_cpu_offload
        self.whiten_advantages = estimator.whiten if whiten_advantages is None else whiten_advantages
        self.seed, self.num_generations = seed, num_generations
        options: dict[str, Any] = {"grad_clip": grad_clip, "precision": precision}
        self.actor = Boosted(actor_booster, policy, actor_optim, actor_lr_scheduler, **options)
        self.critic: Boosted | None = None
        if critic is not None:
            assert critic_booster is not None, "a critic needs its Booster"
            self.critic = Boosted(critic_booster, critic, critic_optim, critic_lr_scheduler, **options)
            if self.critic.replica.size != self.actor.replica.size:
                raise UserError(
                    f"actor and critic learn the same samples, and actor_booster divides them among groups of "
                    f"{self.actor.replica.size} process(es), critic_booster of {self.critic.replica.size}: give both the same sizes"
                )
        reference = make_reference(initial_model, self.actor, kl_coef, precision)
        self.tokenizer, self.conversation = tokenizer, conversation
        offload = offload_inference_models and self.actor.device.type == "cuda"
        scorer = as_scorer(
            reward_model, tokenizer, conversation, precision=precision, device=self.actor.device, offload=offload
        )
        sampling = make_sampling(tokenizer, conversation, generate_kwargs)
        pad_id = tokenizer.pad_token_id or 0
        self.settings = PPOSettings(
            temperature=sampling.temperature,
            eps_clip=eps_clip,
            vf_coef=vf_coef,
            value_clip=value_clip,
            ptx_coef=ptx_coef,
            kl_coef=kl_coef,
            constant_tokens=sampling.max_new_tokens,
            pad_id=pad_id,
            pin_memory=dataloader_pin_memory,
            **(settings or {}),
        )
        if self.critic is None and (self.settings.critic_warmup_steps or self.settings.value_pretraining_episodes):
            raise UserError(
                f"there is no critic of its own to warm up or pretrain (estimator {estimator.name!r}); leave these settings out"
            )
        if engine is None:
            engine = make_engine("hf", tokenizer)
            engine.autocast = precision == "bf16"
        self.maker: NaiveExperienceMaker = NaiveExperienceMaker(
            self.actor,
            self.critic,
            reference,
            scorer,
            engine,
            sampling,
            tokenizer,
            conversation,
            ExperienceSettings(
                temperature=sampling.temperature,
                num_generations=num_generations,
                keep_positive=self.settings.positive_lm_coef > 0,
                kl_coef=kl_coef,
                kl_in=self.settings.kl_in,
                kl_estimator=self.settings.kl_estimator,
                pad_id=pad_id,
                offload_reference=offload,
                **of_experience,
            ),
        )
        self.buffer = ExperienceBuffer(buffer_limit)
        self._checkpointer = PPOCheckpointer(self, dict(run_state or {}), keep_checkpoints, lora_merge)

    @property
    def is_main(self) -> bool:
        return self.coordinator.is_master() if self.coordinator is not None else super().is_main

    @property
    def has_critic(self) -> bool:
        return self.critic is not None

    @property
    def has_adapter(self) -> bool:
        return self.actor.unwrapped.has_adapter

    @property
    def replicas(self) -> int:
        return self.actor.replica.count

    def _add_up(self, values: Tensor) -> Tensor:
        return self.actor.replica.sum(values)

    def _pool(self, items: Sequence[Experience]) -> Sequence[Experience]:
        return pool(items, self.actor.replica, self.num_generations)

    def _training_step(self, batch: Sequence[Experience]) -> None:
        """Phase 4: one optimizer step of actor and critic on one mini-batch."""
        device = self.actor.device
        size = step_size(batch, device, self._add_up)
        meter = self.meter if self.actor.reports else Meter()
        packed = all(role.unwrapped.packs for role in (self.actor, self.critic) if role is not None)
        micro_batches = cut_into_micro_batches(batch, self._local_train_batch, packed, device, self.settings)
        if self._actor_learns:
            positives = positive_size(batch, device, self._add_up) if self.settings.positive_lm_coef else None
            ptx, ptx_size = self._ptx_batch()
            meter.add("lr", self.actor.lr)
            train_actor(self.actor, micro_batches, size, self.settings, meter, ptx, ptx_size, positives)
        if self.critic is not None:
            meter.add("train/lr_critic", self.critic.lr)
            train_critic(self.critic, micro_batches, size, self.settings, meter)

    def _ptx_batch(self) -> tuple[list[SequenceBatch], StepSize | None]:
        """The next rows of the ptx data as one batch, and their tokens over all ranks."""
        if not self.settings.ptx_coef:
            return [], None
        return ptx_step(next(self._ptx), self.actor.device, self.settings, self._add_up)

    def _device(self) -> torch.device:
        return self.actor.device
