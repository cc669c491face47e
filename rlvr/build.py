"""From settings to the parts of a run: problems, prompts, models, optimizers, reward model, trainer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rewards import check_gold
from rlvr.boost.plugins import make_booster, resolve_precision
from rlvr.boost.process import ProcessInfo
from rlvr.boost.schedule import cosine_with_warmup
from rlvr.config import Config
from rlvr.conversation import Conversation, ConversationTemplate, auto_template
from rlvr.core.advantages import get_estimator
from rlvr.data.problem import Problem
from rlvr.data.prompts import Prompt, prepare_prompts
from rlvr.data.readers import read_problems
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.critic import Critic
from rlvr.models.loading import load_backbone, load_causal_lm
from rlvr.run_folder import run_state
from rlvr.validate import BatchPlan

BUILTIN = "builtin"


@dataclass(frozen=True)
class Prompts:
    """Prompts to train on and to evaluate on, and what was left out on the way."""

    train: list[Prompt]
    test: list[Prompt]
    notes: list[str]

    @property
    def fingerprint(self) -> str:
        """Changes when a training prompt changes: a resumed run must see the same data."""
        digest = blake2b(digest_size=8)
        for prompt in self.train:
            digest.update(f"{prompt.problem.id}\0{prompt.problem.answer}\0{prompt.ids}\n".encode())
        return digest.hexdigest()


def choose_template(config: Config, tokenizer: PreTrainedTokenizerBase) -> ConversationTemplate:
    """The template that was named, or with `auto` the shipped one that fits the tokenizer."""
    name = config.template.conversation_template_config
    return ConversationTemplate.load(auto_template(tokenizer) if name == "auto" else name)


def make_prompts(config: Config, conversation: Conversation) -> Prompts:
    """Read, check and encode the problems.

    Raises:
        UserError: problems that can't be read, without usable answers, or all too long.
    """
    notes: list[str] = []
    problems = _read(config, config.data.prompt_dataset, "train", config.data.max_samples)
    problems = _with_good_golds(problems, notes)
    limit = config.rollout.max_length - config.rollout.max_new_tokens
    train = prepare_prompts(problems, conversation, limit, config.data.overlong_prompts)
    for count, what in ((train.dropped, "dropped"), (train.truncated, "cut")):
        if count:
            notes.append(f"{count} of {len(problems)} prompts {what}: longer than {limit} tokens")
    sources = config.data.eval_dataset or ([BUILTIN] if config.data.prompt_dataset == [BUILTIN] else [])
    test: list[Prompt] = []
    if sources:
        held_out = _with_good_golds(_read(config, sources, "test", config.eval.eval_samples), notes)
        test = list(prepare_prompts(held_out, conversation, limit, config.data.overlong_prompts).prompts)
    return Prompts(list(train.prompts), test, notes)


def _read(config: Config, sources: Sequence[str], split: str, limit: int | None) -> list[Problem]:
    return read_problems(
        sources,
        split=split,
        question_column=config.data.question_column,
        answer_column=config.data.answer_column,
        limit=limit,
        seed=0,
    )


def _with_good_golds(problems: Sequence[Problem], notes: list[str]) -> list[Problem]:
    """Leave out problems whose right answer no response could match, and say which."""
    bad = [p for p in problems if p.answer is not None and not check_gold(p.answer)]
    if not bad:
        return list(problems)
    shown = ", ".join(f"{p.source}: {p.answer!r}" for p in bad[:5])
    message = f"{len(bad)} of {len(problems)} right answers can't be parsed ({shown}{', ...' if len(bad) > 5 else ''})"
    if len(bad) == len(problems):
        raise UserError(f"{message}; is --answer_column right?")
    notes.append(f"{message}; these problems are left out")
    left_out = {id(p) for p in bad}
    return [p for p in problems if id(p) not in left_out]


@dataclass(frozen=True)
class Models:
    """The roles before they are boosted, with their optimizers and schedules; no critic where the estimator needs none."""

    actor: Actor
    critic: Critic | None
    initial_model: Actor | None
    actor_optim: torch.optim.Optimizer
    critic_optim: torch.optim.Optimizer | None
    actor_lr_scheduler: Any
    critic_lr_scheduler: Any


def make_models(config: Config, plan: BatchPlan, device: torch.device) -> Models:
    """Load actor, critic and reference; make optimizers, and schedules over the optimizer steps of each role."""
    m, t = config.model, config.train
    base = load_causal_lm(m.pretrain, flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code)
    weights = m.checkpoint_path and load_causal_lm(m.checkpoint_path, trust_remote_code=m.trust_remote_code)
    # The divergence is measured from where this run starts.
    start = weights or base
    actor = Actor(prepare(start, m.grad_checkpoint), t.chunk_tokens).to(device)
    initial = None
    if config.algo.kl_coef:
        source = m.ref_model or m.checkpoint_path or m.pretrain
        reference = load_causal_lm(source, trust_remote_code=m.trust_remote_code)
        check_same_vocabulary(reference, start)
        initial = Actor(prepare(reference, False), t.chunk_tokens)
    actor_optim, actor_schedule = _make_optimizer(config, actor, t.lr, plan.actor_steps, device)
    if not needs_critic(config):
        return Models(actor, None, initial, actor_optim, None, actor_schedule, None)
    critic = _make_critic(config).to(device)
    critic_optim, critic_schedule = _make_optimizer(config, critic, t.critic_lr, plan.total_steps, device)
    return Models(actor, critic, initial, actor_optim, critic_optim, actor_schedule, critic_schedule)


def check_same_vocabulary(reference: PreTrainedModel, actor: PreTrainedModel) -> None:
    """Raise `UserError` unless the reference model knows the tokens that the actor writes."""
    sizes = [model.get_input_embeddings().num_embeddings for model in (reference, actor)]
    if sizes[0] < sizes[1]:
        raise UserError(
            f"--ref_model knows {sizes[0]} tokens and the actor writes {sizes[1]}: the divergence is measured token by token, so "
            "give a model with the actor's tokenizer"
        )


def needs_critic(config: Config) -> bool:
    """Whether the estimator reads values."""
    return get_estimator(config.algo.estimator).critic


def _make_optimizer(
    config: Config, role: torch.nn.Module, lr: float, steps: int, device: torch.device
) -> tuple[torch.optim.Optimizer, Any]:
    t = config.train
    optimizer = torch.optim.AdamW(role.parameters(), lr=lr, weight_decay=t.weight_decay, fused=_fused(config, device))
    return optimizer, cosine_with_warmup(optimizer, steps, t.warmup_steps)


def _fused(config: Config, device: torch.device) -> bool:
    """One kernel for the whole update, but for fp16, whose gradient scaler wants to look at each gradient."""
    return resolve_precision(config.parallel.mixed_precision, device) != "fp16"


def _make_critic(config: Config) -> Critic:
    m = config.model
    if m.critic_checkpoint_path:
        critic = Critic.from_pretrained(m.critic_checkpoint_path)
    else:
        critic = Critic(load_backbone(m.rm_pretrain or m.pretrain, m.trust_remote_code), seed=config.train.seed)
    prepare(critic.backbone, m.grad_checkpoint)
    return critic


def make_boosters(config: Config, process: ProcessInfo) -> tuple[Any, Any]:
    """One Booster for each role; None for a critic that is not needed."""
    make = partial(make_booster, config.parallel, process.device, config.train.grad_clip)
    return make(), make() if needs_critic(config) else None


def ppo_settings(config: Config) -> dict[str, Any]:
    """What goes to the trainer as `settings`: fields of `PPOSettings` that are no arguments of its own."""
    names = (
        "eps_clip_high", "dual_clip", "ratio", "entropy_coef", "positive_lm_coef", "kl_in", "kl_estimator", "kl_target",
        "kl_horizon", "critic_warmup_steps", "value_pretraining_episodes", "loss_reduction",
    )  # fmt: skip
    return {name: getattr(config.algo, name) for name in names} | {
        "micro_batch_tokens": config.train.micro_batch_tokens
    }


def experience_settings(config: Config) -> dict[str, Any]:
    """What goes to the trainer as `experience_settings`: fields of `ExperienceSettings` that are no arguments of its own."""
    names = (
        "estimator", "gamma", "lam", "critic_lam", "lam_alpha", "old_logprobs", "tis_cap", "positive_threshold", "dynamic_sampling",
        "max_refills", "truncated", "whiten_rewards",
    )  # fmt: skip
    return {name: getattr(config.algo, name) for name in names} | {
        "missing_eos_penalty": config.reward.missing_eos_penalty,
        "score_batch_size": config.rollout.generation_batch_size,
    }


def describe_run(config: Config, prompts: Prompts) -> dict[str, Any]:
    """The state that every session of one run must share, data included."""
    return {"settings": run_state(config), "data": {"prompts": len(prompts.train), "hash": prompts.fingerprint}}
