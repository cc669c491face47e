"""What `PPOTrainer` makes of its arguments, and which of them it refuses."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rlvr.boost.boosted import Boosted
from rlvr.conversation import Conversation
from rlvr.core.advantages import Estimator, estimator_names, get_estimator
from rlvr.errors import UserError
from rlvr.experience.maker import SampleScorer
from rlvr.models.actor import Actor
from rlvr.models.frozen import AdapterOff, Frozen, Reference
from rlvr.models.lora import ADAPTER
from rlvr.models.reward_model import RewardModel
from rlvr.rewarding_neural import NeuralRewardModel
from rlvr.rollout.engine import Sampling


def refuse(apply_loss_mask: bool, use_tp: bool, actor_booster: Any) -> None:
    """Raise `UserError` for arguments that would train wrongly."""
    if not apply_loss_mask:
        raise UserError("apply_loss_mask=False (--disable_loss_mask) would train on padding; leave it on")
    if use_tp and getattr(actor_booster.plugin, "tp_size", 1) == 1:
        raise UserError(
            "use_tp=True, and actor_booster's plugin has no tensor parallelism: give rlvr.boost.plugins.make_booster("
            "ParallelConfig(plugin='3d', tp=2), ...), or leave use_tp out"
        )


def refuse_sampled(actor: Any, experience: Mapping[str, Any]) -> None:
    """Raise `UserError` if the engine's logprobs are to save a forward pass that is needed for the values anyway."""
    if experience.get("old_logprobs") == "sampled" and inner_of(actor).gives_values:
        raise UserError(
            "old_logprobs 'sampled' saves a forward pass, which an actor that gives values (--share_trunk) makes anyway: take "
            "'recompute'"
        )


def inner_of(model: Any) -> Any:
    """The module inside a Booster's wrapper, if there is one."""
    return model.unwrap() if hasattr(model, "unwrap") else model


def choose_estimator(name: str, actor: Any, critic: Any, num_generations: int) -> Estimator:
    """The named estimator, if there is what it needs.

    Raises:
        UserError: it is unknown, lacks values or has one source of them too many, or lacks responses to compare.
    """
    try:
        found = get_estimator(name)
    except ValueError as error:
        raise UserError(str(error)) from None
    gives_values = inner_of(actor).gives_values
    if critic is not None and gives_values:
        raise UserError(
            "the actor gives values itself (ActorWithValues); pass critic, critic_booster, critic_optim as None"
        )
    if found.critic and critic is None and not gives_values:
        without = ", ".join(n for n in estimator_names() if not get_estimator(n).critic)
        raise UserError(f"estimator {name!r} needs a critic; give one, or choose one that needs none: {without}")
    if gives_values and not found.critic:
        raise UserError(f"estimator {name!r} reads no values; pass an Actor instead of an ActorWithValues")
    if critic is not None and not found.critic:
        raise UserError(f"estimator {name!r} reads no values; pass critic=None, critic_booster=None, critic_optim=None")
    if found.groups and num_generations < 2:
        raise UserError(
            f"estimator {name!r} compares responses to the same prompt: num_generations {num_generations} must be at least 2"
        )
    return found


def as_actor(model: Any) -> Any:
    """A plain causal LM becomes an `Actor`; an `Actor`, boosted or not, stays. A peft model lies around a transformers
    model that has the adapters in it, which is what becomes an `Actor`.

    Raises:
        UserError: a model that was boosted already, or a peft model without LoRA.
    """
    if hasattr(model, "get_base_model"):
        _check_lora(model)
        model = model.get_base_model()
    inner = inner_of(model)
    if isinstance(inner, Actor):
        return model
    if inner is not model:
        raise UserError(
            "actor is a causal LM that was boosted already; pass it before booster.boost (the trainer boosts it), or boost "
            "rlvr.models.actor.Actor(model) instead"
        )
    return Actor(model)


def _check_lora(model: Any) -> None:
    kinds = sorted({str(getattr(config.peft_type, "value", config.peft_type)) for config in model.peft_config.values()})
    if kinds != ["LORA"] or list(model.peft_config) != [ADAPTER]:
        raise UserError(
            f"actor is a peft model with {', '.join(kinds)} adapters named {', '.join(model.peft_config)}; give one with a "
            f"single LoRA adapter named {ADAPTER!r} (peft's name for it), or a plain model"
        )


def make_reference(model: Any, actor: Boosted, kl_coef: float, precision: str) -> Reference | None:
    """The frozen initial model; without one, the actor with its adapter off; None where nobody asks for it.

    Raises:
        UserError: a divergence is asked for, and there is nothing that it could be measured from.
    """
    if not kl_coef:
        return None
    if model is not None:
        return Frozen(model if isinstance(model, Actor) else Actor(model), precision, actor.device)
    if actor.unwrapped.has_adapter:
        return AdapterOff(actor.unwrapped, actor.forward)
    raise UserError(f"kl_coef {kl_coef} needs initial_model, from which the divergence is measured; or set kl_coef=0")


def as_scorer(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation | None,
    *,
    precision: str,
    device: torch.device,
    offload: bool,
) -> SampleScorer:
    """A `RewardModel`, or a sequence classifier of transformers, becomes a scorer of the policy's own tokens; what scores
    samples already stays.

    Raises:
        UserError: a classifier that is no reward model.
    """
    if isinstance(model, PreTrainedModel):
        model = RewardModel(model)
    if not isinstance(model, RewardModel):
        return model
    tags = conversation.tags if conversation is not None else None
    return NeuralRewardModel(model, tokenizer, tags, precision=precision, device=device, offload=offload)


def make_sampling(
    tokenizer: PreTrainedTokenizerBase, conversation: Conversation | None, given: Mapping[str, Any]
) -> Sampling:
    """Sampling settings from `generate_kwargs`; stops come from the template, or else are the tokenizer's end token."""
    known = set(Sampling.__dataclass_fields__)
    if unknown := set(given) - known:
        raise UserError(f"unknown generation settings {sorted(unknown)}; known: {', '.join(sorted(known))}")
    stops: dict[str, Any]
    if conversation is not None:
        stops = {"stop_ids": tuple(conversation.stop_ids), "stop_strings": tuple(conversation.stop_strings)}
    else:
        stops = {"stop_ids": () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)}
    return Sampling(**{"max_new_tokens": 256, **stops, **given})
