"""What TRL's trainer takes as models and callbacks, as this library's."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from rlvr.boost.plugins import resolve_precision
from rlvr.compat.trl_config import PPOConfig
from rlvr.errors import UserError
from rlvr.models.critic import Critic
from rlvr.models.lora import apply_lora
from rlvr.models.lora_settings import parse_lora_settings, refuse_dropout
from rlvr.models.reward_model import RewardModel
from rlvr.rewarding import RLVRRewardModel
from rlvr.rewarding_neural import NeuralRewardModel
from rlvr.trainer.callbacks import Callback


def refuse(
    model: Any,
    ref_model: Any,
    reward_model: Any,
    value_model: Any,
    data_collator: Any,
    optimizers: tuple[Any, Any],
) -> None:
    """Raise `UserError` for arguments that can't be honoured."""
    if ref_model is model and model is not None:
        raise UserError("model and ref_model are one object, which training would move: give a copy, or ref_model=None")
    if reward_model is value_model and value_model is not None:
        raise UserError("reward_model and value_model are one object, which training would move: load it twice")
    if data_collator is not None:
        raise UserError("data_collator: padding is made from lengths; leave it out (rows need input_ids or prompt)")
    if any(part is not None for part in optimizers):
        raise UserError(
            "optimizers: policy and value model have an AdamW each; leave it out and set PPOConfig(learning_rate=..., "
            "lr_scheduler_type=...), or take rlvr.PPOTrainer, which takes both optimizers"
        )


def adapt(model: PreTrainedModel, peft_config: Any, seed: int) -> None:
    """Put the LoRA adapters of a `peft.LoraConfig` into the policy, whose own weights then stay as they are.

    Raises:
        UserError: another kind of adapter, settings that can't be trained with, or targets that match nothing.
    """
    if not hasattr(peft_config, "to_dict"):
        raise UserError(f"peft_config is a {type(peft_config).__name__}: give a peft.LoraConfig")
    settings = parse_lora_settings(peft_config.to_dict(), "peft_config")
    refuse_dropout(settings, "peft_config")
    apply_lora(model, settings, seed)


def check_callbacks(callbacks: Sequence[Any]) -> None:
    """Raise `UserError` for callbacks of another kind."""
    for callback in callbacks:
        if isinstance(callback, TrainerCallback):
            raise UserError(
                f"callbacks: {type(callback).__name__} is a transformers TrainerCallback, whose state and control this trainer "
                "does not have: subclass rlvr.Callback"
            )
        if not isinstance(callback, Callback):
            raise UserError(f"callbacks: {callback!r} is no rlvr.Callback")


def as_critic(value_model: Any, policy: PreTrainedModel, seed: int) -> Critic:
    """A `Critic` as it is; a sequence classifier with one label with its decoder and its head; None: from the policy.

    Raises:
        UserError: more than one label, or no linear head.
    """
    if isinstance(value_model, Critic):
        return value_model
    if value_model is None:
        return Critic(copy.deepcopy(policy.base_model), seed=seed)
    if not isinstance(value_model, PreTrainedModel):
        raise UserError(f"value_model is a {type(value_model).__name__}: give a sequence classifier, or rlvr.Critic")
    return Critic.from_reward_model(_with_one_label(value_model, "value_model"))


def _with_one_label(model: PreTrainedModel, argument: str) -> RewardModel:
    try:
        return RewardModel(model)
    except UserError as error:
        raise UserError(f"{argument}: {error}") from None


def as_reward_model(given: Any, tokenizer: PreTrainedTokenizerBase, device: torch.device, args: PPOConfig) -> Any:
    """What scores samples, from a sequence classifier, reward functions, their names, or a scorer as it is.

    Raises:
        UserError: nothing, an unknown name, or a classifier with several labels or another vocabulary.
    """
    if given is None:
        raise UserError("reward_model is missing: give a sequence classifier, a reward function, or the name of one")
    if hasattr(given, "begin"):
        return given
    if isinstance(given, RewardModel | PreTrainedModel):
        model = given if isinstance(given, RewardModel) else _with_one_label(given, "reward_model")
        known = model.model.get_input_embeddings().num_embeddings
        if known < len(tokenizer):
            raise UserError(
                f"reward_model knows {known} tokens and the policy's tokenizer has {len(tokenizer)}: give a reward model that reads "
                "the policy's tokens, or a function that encodes the text anew"
            )
        return NeuralRewardModel(
            model,
            tokenizer,
            batch_size=args.local_rollout_forward_batch_size,
            device=device,
            precision=resolve_precision(args.precision, device),
        )
    functions = [given] if isinstance(given, str) or callable(given) else list(given)
    if not functions:
        raise UserError("reward_model is an empty list: give at least one reward function")
    return RLVRRewardModel(functions, tokenizer)
