"""PPO and its relatives with all models in this process, for rule rewards and neural reward models alike.

`LocalPPOTrainer` is built from parts and one tree of settings; a run makes it (`rlvr.run.assembly`). `PPOTrainer` is the same
trainer behind ColossalChat's 31 arguments. Both only join a maker (`rlvr.experience.maker`) and a learner
(`rlvr.trainer.ppo_update`) to the loop, which is in `rlvr.trainer.online`.
Source: Schulman et al., "Proximal Policy Optimization Algorithms", 2017; Ouyang et al., "InstructGPT", 2022.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.boost.boosted import Boosted
from rlvr.boost.plugins import resolve_precision
from rlvr.config import Config, by_section, merge, overlay
from rlvr.errors import UserError
from rlvr.experience.maker import NaiveExperienceMaker, SampleScorer
from rlvr.models.actor import Actor
from rlvr.models.critic import Critic
from rlvr.models.reward_model import RewardModel
from rlvr.prompting.conversation import Conversation
from rlvr.rollout.engine import Engine, Sampling
from rlvr.rollout.registry import make_engine
from rlvr.tracking.tracker import Tracker
from rlvr.trainer.online import OnlineTrainer
from rlvr.trainer.ppo_update import Learner
from rlvr.trainer.roles import as_actor, as_scorer, check_follows, choose_estimator, make_reference, make_sampling

if TYPE_CHECKING:
    from colossalai.booster import Booster
    from colossalai.cluster import DistCoordinator

    from rlvr.evaluation.evaluator import Evaluator
    from rlvr.trainer.callbacks import Callback


class LocalPPOTrainer(OnlineTrainer):
    """PPO whose models are all in this process (or sharded over a process group that runs the same code).

    Args:
        config: the run's settings. Those of models and data are not read here: the other arguments are made from them.
        actor: the policy.
        critic: None for estimators that read no values, and for an actor that gives them itself (`ActorWithValues`).
        reward_model: scores responses; an `RLVRRewardModel` (or anything with its `begin` method), a `RewardModel`, or a
            transformers sequence classifier with one label that reads the policy's tokens.
        initial_model: frozen policy that the divergence is measured from. None is enough for an actor with LoRA adapters
            (it is the actor with its adapter off), else it needs `kl_coef` 0.
        tokenizer: of the policy.
        sampling: how responses are drawn.
        conversation: template bound to the tokenizer: its tags go to the reward functions.
        engine: samples responses; by default transformers' models with our decoding loop.
        pin_memory: pin batches on their way to a GPU.
        coordinator: ColossalAI's; decides which process writes. By default rank 0.
        callbacks, save_dir, tracker, run_state: as `OnlineTrainer`'s.

    Raises:
        UserError: parts and settings that don't go together; the message says which.
    """

    learner: Learner
    maker: NaiveExperienceMaker

    def __init__(
        self,
        config: Config,
        actor: Boosted,
        critic: Boosted | None,
        reward_model: SampleScorer | RewardModel | PreTrainedModel,
        initial_model: PreTrainedModel | Actor | None,
        tokenizer: PreTrainedTokenizerBase,
        sampling: Sampling,
        *,
        conversation: Conversation | None = None,
        engine: Engine | None = None,
        pin_memory: bool = True,
        coordinator: "DistCoordinator | None" = None,
        callbacks: "Sequence[Callback]" = (),
        save_dir: str | Path | None = None,
        tracker: Tracker | None = None,
        run_state: Mapping[str, Any] | None = None,
    ) -> None:
        _check_roles(config, actor, critic)
        precision = resolve_precision(config.parallel.mixed_precision, actor.device)
        offload = config.train.offload_inference_models and actor.device.type != "cpu"
        scorer = as_scorer(reward_model, tokenizer, conversation, actor=actor, offload=offload)
        if engine is None:
            engine = make_engine("hf", tokenizer)
            engine.autocast = precision == "bf16"
        reference = make_reference(initial_model, actor, config.algo.kl_coef)
        if config.algo.reference_reset_interval:
            check_follows(reference, actor, config.algo.reference_mix)
        maker = NaiveExperienceMaker(
            actor,
            critic,
            reference,
            scorer,
            engine,
            sampling,
            tokenizer,
            conversation,
            config,
            offload_reference=offload,
        )
        self.coordinator, self.conversation = coordinator, conversation
        super().__init__(
            config,
            maker,
            Learner(config, actor, critic, tokenizer, pin_memory=pin_memory),
            tokenizer,
            callbacks=callbacks,
            save_dir=save_dir,
            tracker=tracker,
            run_state=run_state,
        )

    @property
    def actor(self) -> Boosted:
        assert self.learner.actor is not None
        return self.learner.actor

    @property
    def critic(self) -> Boosted | None:
        return self.learner.critic

    @property
    def is_main(self) -> bool:
        return self.coordinator.is_master() if self.coordinator is not None else super().is_main

    def evaluate_with(self, evaluator: "Evaluator") -> None:
        """Evaluate the policy on held-out problems: before and after training, and every `eval_interval` episodes."""

        def evaluate() -> dict[str, float] | None:
            with self.actor.full_weights() as actor:
                return evaluator(actor.model, self.stop_asked)

        self.evaluator = evaluate


def _check_roles(config: Config, actor: Boosted, critic: Boosted | None) -> None:
    """Raise `UserError` if the settings can't train these roles."""
    a = config.algo
    estimator = choose_estimator(a.estimator, actor.unwrapped, critic, config.rollout.num_generations)
    if a.old_logprobs == "sampled" and actor.unwrapped.gives_values:
        raise UserError(
            "old_logprobs 'sampled' saves a forward pass, which an actor that gives values (--share_trunk) makes anyway: take "
            "'recompute'"
        )
    if critic is None and (a.critic_warmup_steps or a.value_pretraining_episodes):
        raise UserError(
            f"there is no critic of its own to warm up or pretrain (estimator {estimator.name!r}); leave these settings out"
        )
    if critic is not None and critic.replica.size != actor.replica.size:
        raise UserError(
            f"actor and critic learn the same samples, and actor_booster divides them among groups of "
            f"{actor.replica.size} process(es), critic_booster of {critic.replica.size}: give both the same sizes"
        )


class PPOTrainer(LocalPPOTrainer):
    """PPO over ColossalAI Boosters. The first 31 arguments are ColossalChat's, with its names.

    Args:
        actor_booster, critic_booster: one Booster for each role.
        actor: the policy: a transformers causal LM or an `Actor`, or an `Actor` that `actor_booster` has boosted.
        critic: a `Critic`, boosted or not. None (with its Booster and optimizer) for estimators that read no values, and
            for an actor that gives them itself (`ActorWithValues`).
        reward_model, initial_model: as `LocalPPOTrainer`'s.
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
        engine: samples responses; by default transformers' models with our decoding loop.
        settings: further settings by the names of their flags: `{"estimator": "grpo", "num_generations": 8, "seed": 1}`. They
            win over the arguments.
        run_state: identifies the run (its configuration); a checkpoint with another is refused.
        tracker: where metrics go.
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
        settings: Mapping[str, Any] | None = None,
        run_state: Mapping[str, Any] | None = None,
        tracker: Tracker | None = None,
        **generate_kwargs: Any,
    ) -> None:
        _refuse(apply_loss_mask, use_tp, actor_booster)
        sampling = make_sampling(tokenizer, conversation, generate_kwargs)
        of_arguments: dict[str, dict[str, Any]] = {
            "algo": {
                "kl_coef": kl_coef, "ptx_coef": ptx_coef, "eps_clip": eps_clip, "vf_coef": vf_coef, "value_clip": value_clip,
            },
            "rollout": {
                "max_new_tokens": sampling.max_new_tokens, "temperature": sampling.temperature, "top_k": sampling.top_k,
                "top_p": sampling.top_p, "generation_batch_size": sampling.batch_size,
            },
            "train": {
                "train_batch_size": train_batch_size, "accumulation_steps": accumulation_steps, "buffer_limit": buffer_limit,
                "buffer_cpu_offload": buffer_cpu_offload, "sample_buffer": sample_buffer,
                "offload_inference_models": offload_inference_models,
            },
            "parallel": {"mixed_precision": "fp32"},
            "ckpt": {"save_interval": save_interval},
        }  # fmt: skip
        config = merge(Config(), overlay(of_arguments, by_section(settings or {})))
        policy = as_actor(actor)
        # Before boosting: for an estimator without a critic there is no critic_booster, so a critic given by mistake must be
        # refused first.
        choose_estimator(config.algo.estimator, policy, critic, config.rollout.num_generations)
        options: dict[str, Any] = {
            "grad_clip": config.train.grad_clip,
            "precision": config.parallel.mixed_precision,
        }
        boosted = Boosted(actor_booster, policy, actor_optim, actor_lr_scheduler, **options)
        boosted_critic = None
        if critic is not None:
            assert critic_booster is not None, "a critic needs its Booster"
            boosted_critic = Boosted(critic_booster, critic, critic_optim, critic_lr_scheduler, **options)
        super().__init__(
            config,
            boosted,
            boosted_critic,
            reward_model,
            initial_model,
            tokenizer,
            sampling,
            conversation=conversation,
            engine=engine,
            pin_memory=dataloader_pin_memory,
            coordinator=coordinator,
            callbacks=callbacks,
            save_dir=save_dir,
            tracker=tracker,
            run_state=run_state,
        )


def _refuse(apply_loss_mask: bool, use_tp: bool, actor_booster: Any) -> None:
    """Raise `UserError` for arguments that would train wrongly."""
    if not apply_loss_mask:
        raise UserError("apply_loss_mask=False (--disable_loss_mask) would train on padding; leave it on")
    if use_tp and getattr(actor_booster.plugin, "tp_size", 1) == 1:
        raise UserError(
            "use_tp=True, and actor_booster's plugin has no tensor parallelism: give rlvr.boost.plugins.make_booster("
            "ParallelConfig(plugin='3d', tp=2), ...), or leave use_tp out"
        )
