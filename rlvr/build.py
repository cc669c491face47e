"""From settings to the parts of a run: problems, prompts, models, optimizers, reward model, trainer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from rewards import resolve
from rlvr.boost.agreement import digest, function_digest
from rlvr.boost.plugins import make_booster, resolve_precision
from rlvr.boost.process import ProcessInfo
from rlvr.boost.schedule import adamw, cosine_with_warmup
from rlvr.checks.golds import with_good_golds
from rlvr.checks.lora import lora_settings
from rlvr.checks.settings import BatchPlan
from rlvr.config import Config, DataConfig, trains_on_builtin
from rlvr.conversation import Conversation
from rlvr.core.advantages import get_estimator
from rlvr.data.problem import Problem
from rlvr.data.prompt_csv import read_prompt_csv
from rlvr.data.prompts import Prompt, fingerprint, prepare_prompts
from rlvr.data.readers import read_problems
from rlvr.errors import UserError
from rlvr.evaluation.evaluator import Evaluator
from rlvr.evaluation.held_out import Asked, Reading, read_held_out, short_names
from rlvr.models.actor import Actor, ActorWithValues
from rlvr.models.adapter import is_adapter
from rlvr.models.adapter_files import adapter_settings, start_adapter
from rlvr.models.backbone import prepare
from rlvr.models.critic import Critic
from rlvr.models.loading import load_backbone, load_causal_lm
from rlvr.models.lora import apply_lora, copy_sharing
from rlvr.models.lora_settings import LoraSettings
from rlvr.models.value_head import has_head
from rlvr.reward_settings import function_names
from rlvr.rollout.engine import Engine, Sampling
from rlvr.run_folder import run_state
from rlvr.template_check import require_template

BUILTIN = "builtin"


@dataclass(frozen=True)
class Prompts:
    """Prompts to train on and to evaluate on, and what was left out on the way."""

    train: list[Prompt]
    test: list[Asked]
    notes: list[str]

    @property
    def fingerprint(self) -> str:
        """Changes when a training prompt changes: a resumed run must see the same data."""
        return fingerprint(self.train)

    @property
    def held_out_fingerprint(self) -> str:
        """Changes when a held-out prompt changes."""
        return fingerprint(asked.prompt for asked in self.test)


def make_prompts(config: Config, conversation: Conversation) -> Prompts:
    """Check the template; read, check and encode the problems.

    Raises:
        UserError: a template that would ruin training, or problems that can't be read, without usable answers, or all
            too long.
    """
    t, cuts = config.template, config.data.overlong_prompts == "truncate"
    notes = require_template(
        conversation, t.conversation_template_config, stop=t.template_check == "stop", truncates=cuts
    )
    problems = _read_training(config.data)
    functions = [resolve(name) for name in function_names(config)]
    problems = with_good_golds(problems, notes, functions)
    limit = config.rollout.max_length - config.rollout.max_new_tokens
    train = prepare_prompts(problems, conversation, limit, config.data.overlong_prompts)
    for count, what in ((train.dropped, "dropped"), (train.truncated, "cut")):
        if count:
            notes.append(f"{count} of {len(problems)} prompts {what}: longer than {limit} tokens")
    return Prompts(list(train.prompts), _read_held_out(config, conversation, limit, notes), notes)


def _read_training(data: DataConfig) -> list[Problem]:
    if data.prompt_csv_url is None:
        return read_problems(
            data.prompt_dataset,
            split="train",
            question_column=data.question_column,
            answer_column=data.answer_column,
            limit=data.max_samples,
        )
    question = data.question_column or "prompt"
    return read_prompt_csv(
        data.prompt_csv_url, question_column=question, answer_column=data.answer_column, limit=data.max_samples
    )


def _read_held_out(config: Config, conversation: Conversation, limit: int, notes: list[str]) -> list[Asked]:
    """The problems of all held-out data sets."""
    data, asked = config.data, list[Asked]()
    sources = data.eval_datasets or ([BUILTIN] if trains_on_builtin(data) else [])
    how = Reading(
        "--eval_datasets",
        max_prompt_tokens=limit,
        question_column=data.question_column,
        answer_column=data.answer_column,
        limit=config.eval.eval_samples,
        overlong=data.overlong_prompts,
    )
    for source, name in zip(sources, short_names(sources), strict=True):
        asked += read_held_out(source, name, how, conversation, notes)
    return asked


@dataclass(frozen=True)
class Models:
    """The roles before they are boosted, with their optimizers and schedules; no critic where the estimator needs none.
    `lora`: settings of the adapters that learn, if there are any."""

    actor: Actor
    critic: Critic | None
    initial_model: Actor | None
    actor_optim: torch.optim.Optimizer
    critic_optim: torch.optim.Optimizer | None
    actor_lr_scheduler: Any
    critic_lr_scheduler: Any
    lora: LoraSettings | None


def make_models(config: Config, plan: BatchPlan, device: torch.device) -> Models:
    """Load actor, critic and reference; make optimizers, and schedules over the optimizer steps of each role.

    With LoRA, actor and critic share the base model's weights, and the reference is the actor with its adapter off.
    """
    lora = lora_settings(config.model)
    base = load_base(config)
    trunk = copy_sharing(base.base_model) if lora is not None and has_critic(config) else None
    actor = make_actor(config, base, lora).to(device)
    initial = make_initial_model(config) if has_initial_model(config, lora) else None
    if initial is not None:
        check_same_vocabulary(initial.model, base)
    actor_optim, actor_schedule = make_optimizer(config, actor, config.train.lr, plan.actor_steps, device)
    if not has_critic(config):
        return Models(actor, None, initial, actor_optim, None, actor_schedule, None, lora)
    critic = make_critic(config, trunk, lora).to(device)
    critic_optim, critic_schedule = make_optimizer(config, critic, config.train.critic_lr, plan.total_steps, device)
    return Models(actor, critic, initial, actor_optim, critic_optim, actor_schedule, critic_schedule, lora)


def _start(config: Config) -> str:
    """Whose weights the actor starts from, adapters aside. The divergence is measured from where this run starts."""
    m = config.model
    return m.pretrain if is_adapter(m.checkpoint_path) else m.checkpoint_path or m.pretrain


def load_base(config: Config) -> PreTrainedModel:
    """The model under the actor, as it was saved, without this run's adapters."""
    m = config.model
    return load_causal_lm(_start(config), flash_attention=m.use_flash_attn, trust_remote_code=m.trust_remote_code)


def make_initial_model(config: Config) -> Actor:
    """The model that the divergence is measured from."""
    m = config.model
    reference = load_causal_lm(m.ref_model or _start(config), trust_remote_code=m.trust_remote_code)
    return Actor(prepare(reference, False), config.train.chunk_tokens)


def check_same_vocabulary(reference: PreTrainedModel, actor: PreTrainedModel) -> None:
    """Raise `UserError` unless the reference model knows the tokens that the actor writes."""
    compare_vocabularies(*(model.get_input_embeddings().num_embeddings for model in (reference, actor)))


def compare_vocabularies(reference: int, actor: int) -> None:
    """Raise `UserError` unless the reference model knows as many tokens as the actor."""
    if reference < actor:
        raise UserError(
            f"--ref_model knows {reference} tokens and the actor writes {actor}: the divergence is measured token by token, so "
            "give a model with the actor's tokenizer"
        )


def has_critic(config: Config) -> bool:
    """Whether there is a critic of its own: the estimator reads values, and the actor does not give them."""
    return get_estimator(config.algo.estimator).critic and not config.model.share_trunk


def has_initial_model(config: Config, lora: LoraSettings | None) -> bool:
    """Whether there is a reference model of its own: a divergence is asked for, and the actor less its adapter is not it."""
    return bool(config.algo.kl_coef) and (lora is None or bool(config.model.ref_model))


def make_actor(config: Config, base: PreTrainedModel, lora: LoraSettings | None) -> Actor:
    """The actor, with its adapter; one that gives values goes on with the head of an earlier run, if it starts from one."""
    m = config.model
    start_adapter(base, lora, m.checkpoint_path, config.train.seed)
    model = prepare(base, m.grad_checkpoint)
    if not config.model.share_trunk:
        return Actor(model, config.train.chunk_tokens)
    actor = ActorWithValues(model, seed=config.train.seed, chunk_tokens=config.train.chunk_tokens)
    start = config.model.checkpoint_path
    if start and has_head(start):
        actor.value_head.load(start)
    return actor


def make_optimizer(
    config: Config, role: torch.nn.Module, lr: float, steps: int, device: torch.device
) -> tuple[torch.optim.Optimizer, Any]:
    """AdamW over what learns of a role, and its schedule over so many optimizer steps."""
    t = config.train
    precision = resolve_precision(config.parallel.mixed_precision, device)
    optimizer = adamw(role, precision, lr=lr, weight_decay=t.weight_decay)
    return optimizer, cosine_with_warmup(optimizer, steps, t.warmup_steps)


def make_critic(config: Config, trunk: PreTrainedModel | None, lora: LoraSettings | None) -> Critic:
    """The critic: saved, or made of its base model with a new head.

    Args:
        trunk: with LoRA: the actor's base model less its head, which the critic's is by default.
    """
    m, t = config.model, config.train
    saved = m.critic_checkpoint_path
    own_adapter = saved if saved and is_adapter(saved) and has_head(saved) else None  # and not a reward model's
    if saved and not own_adapter:
        critic = Critic.from_pretrained(saved)
    elif m.rm_pretrain or trunk is None:
        critic = Critic(load_backbone(m.rm_pretrain or m.pretrain, m.trust_remote_code), seed=t.seed)
    else:
        critic = Critic(trunk, seed=t.seed)
    if own_adapter:
        apply_lora(critic.backbone, adapter_settings(own_adapter))
        critic.load_adapter(own_adapter)
    elif lora is not None:
        apply_lora(critic.backbone, lora, seed=t.seed)
    prepare(critic.backbone, m.grad_checkpoint)
    return critic


def make_boosters(config: Config, process: ProcessInfo) -> tuple[Any, Any]:
    """One Booster for each role; None for a critic that is not needed."""
    make = partial(make_booster, config.parallel, process.device, config.train.grad_clip)
    return make(), make() if has_critic(config) else None


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


def sampling_arguments(config: Config) -> dict[str, Any]:
    """How training samples: what goes to the trainer as `generate_kwargs`."""
    r = config.rollout
    return {
        "max_new_tokens": r.max_new_tokens,
        "temperature": r.temperature,
        "top_k": r.top_k,
        "top_p": r.top_p,
        "batch_size": r.generation_batch_size,
    }


def training_sampling(config: Config, conversation: Conversation) -> Sampling:
    """How training samples, stops included."""
    stops: dict[str, Any] = {"stop_ids": conversation.stop_ids, "stop_strings": conversation.stop_strings}
    return Sampling(**sampling_arguments(config), **stops)


def make_evaluator(
    config: Config, held_out: Sequence[Asked], engine: Engine, tokenizer: Any, conversation: Conversation
) -> Evaluator | None:
    """What answers the held-out problems, if there are any: from the whole distribution, at a temperature of its own."""
    if not held_out:
        return None
    e = config.eval
    sampling = replace(training_sampling(config, conversation), temperature=e.eval_temperature, top_k=0, top_p=1.0)
    return Evaluator(held_out, engine, sampling, tokenizer, conversation, samples=e.eval_generations)


def describe_run(config: Config, prompts: Prompts, lora: LoraSettings | None) -> dict[str, Any]:
    """The state that every session of one run must share, data and adapters included."""
    return {
        "settings": run_state(config),
        "data": {"prompts": len(prompts.train), "hash": prompts.fingerprint},
        "lora": asdict(lora) if lora is not None else None,
    }


def describe_data(config: Config, prompts: Prompts, ptx: Any) -> dict[str, Any]:
    """Digests of what is learned from, and of the functions that judge it, to be compared between processes."""
    functions = {name: function_digest(resolve(name).function) for name in function_names(config)}
    return {
        "prompts": {"count": len(prompts.train), "hash": prompts.fingerprint},
        "held out": {"count": len(prompts.test), "hash": prompts.held_out_fingerprint},
        "ptx rows": digest(repr(ptx.items).encode()) if ptx is not None else None,
        "reward functions": functions,
    }


def starting_models(models: Models) -> dict[str, torch.nn.Module | None]:
    """The roles whose weights must be the same in all processes at the start."""
    return {"actor": models.actor, "critic": models.critic, "reference": models.initial_model}
