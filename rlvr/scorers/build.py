"""`make_reward_model`: the scorer that the settings ask for.

Reward functions, a neural reward model or both, wrapped in the environment of `--rl_env_type`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from rewards import RewardFunction, load_plugins
from rewards.pool import RewardPool
from rlvr.boost.plugins import freeze
from rlvr.config import Config, RewardConfig
from rlvr.config.reward_options import (
    NEURAL,
    function_names,
    is_multi_objective,
    parse_env_config,
    parse_objectives,
    reward_options,
)
from rlvr.errors import UserError, listed
from rlvr.models.loading import load_tokenizer
from rlvr.models.lora_config import is_adapter
from rlvr.models.reward_model import RewardModel
from rlvr.prompting.conversation import Conversation, ConversationTemplate, auto_template
from rlvr.scorers.environments import MultiObjective, PreferenceComparison
from rlvr.scorers.neural import (
    Encode,
    FixedNormaliser,
    NeuralRewardModel,
    Normaliser,
    Retokenize,
    RunningNormaliser,
    WeightedRewards,
    sampled_tokens,
)
from rlvr.scorers.rules import RewardScorer, RLVRRewardModel

Note = Callable[[str], None]
"""Tells the user a line."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


def make_reward_model(
    config: Config,
    conversation: Conversation,
    tokenizer: PreTrainedTokenizerBase,
    device: torch.device,
    note: Note = lambda message: None,
) -> RewardScorer:
    """The scorer of a run. `note` gets lines for the user, such as which tokens the reward model reads.

    Raises:
        UserError: a plugin that can't be loaded, an unknown function or option, a reward model that can't be used.
    """
    r, e = config.reward, config.env
    scorer = _make_scorer(config, conversation, tokenizer, device, note)
    if is_multi_objective(config):
        objectives = parse_objectives(e.rl_reward_weights) or dict.fromkeys(scorer.names, 1.0)
        if unpaid := _without_weight(scorer.names, objectives):
            note(
                f"{listed(unpaid)}: scored and logged, but not paid, for --rl_reward_weights {e.rl_reward_weights} names no weight: "
                f'to pay it, add {{"{unpaid[0]}": 1.0}}'
            )
        scorer = MultiObjective(scorer, objectives, r.reward_aggregation)
    if e.rl_env_type == "preference_comparison":
        scorer = PreferenceComparison(scorer, **parse_env_config(e.rl_env_type, e.rl_env_config))
    return scorer


def _without_weight(names: Sequence[str], objectives: Mapping[str, float]) -> list[str]:
    """The scores that no objective pays. (An objective may also be a component by its bare name, of a function that only shows when it
    is called.)"""
    paid = {objective.partition("/")[0] for objective in objectives}
    return [name for name in names if name not in paid and (name == NEURAL or paid <= set(names))]


def _make_scorer(
    config: Config, conversation: Conversation, tokenizer: PreTrainedTokenizerBase, device: torch.device, note: Note
) -> RewardScorer:
    r, functions = config.reward, function_names(config)
    neural = _make_neural(config, conversation, tokenizer, device, note) if config.model.rm_checkpoint_path else None
    load_plugins(r.reward_plugins)
    if neural is not None and not functions:
        return neural
    rules = RLVRRewardModel(
        functions,
        tokenizer,
        conversation.tags,
        weights=r.reward_weights or None,
        options=reward_options(config),
        aggregation=r.reward_aggregation,
        make_pool=partial(_make_pool, r) if r.reward_workers != 0 else None,
    )
    return rules if neural is None else WeightedRewards(rules, neural, r.reward_aggregation)


def _make_pool(r: RewardConfig, functions: Sequence[RewardFunction]) -> RewardPool | None:
    """Worker processes for the functions; none for rlvr's own, which can't hang, unless they are asked for."""
    if r.reward_workers is None and all(f.is_bounded for f in functions):
        return None
    return RewardPool(functions, plugins=r.reward_plugins, workers=r.reward_workers, **pool_limits(r))


def pool_limits(r: RewardConfig) -> dict[str, Any]:
    """What a `RewardPool` allows its workers, by the settings."""
    return {
        "timeout_s": r.reward_timeout_s,
        "memory_limit_bytes": r.reward_memory_mb * 2**20,
        "max_failed_share": r.max_reward_failures,
    }


def _make_neural(
    config: Config, conversation: Conversation, tokenizer: PreTrainedTokenizerBase, device: torch.device, note: Note
) -> NeuralRewardModel:
    m, r = config.model, config.reward
    path = _weights_of(m.rm_checkpoint_path or "")
    try:
        model = RewardModel.from_pretrained(
            path,
            base=m.rm_pretrain,
            flash_attention=m.use_flash_attn,
            trust_remote_code=m.trust_remote_code,
        )
    except UserError as error:
        raise UserError(f"--rm_checkpoint_path {m.rm_checkpoint_path}: {error}") from None
    return NeuralRewardModel(
        freeze(model, config.parallel, device),
        tokenizer,
        conversation.tags,
        weight=r.rm_weight,
        encode=_choose_encoding(config, path, model, tokenizer, note),
        normaliser=_make_normaliser(r, model, path),
        batch_size=config.rollout.generation_batch_size,
        offload=config.train.offload_inference_models and device.type != "cpu",
        aggregation=r.reward_aggregation,
    )


def _weights_of(path: str) -> str:
    """Where the weights lie: a folder of a whole run of `rlvr reward-model` holds them further down."""
    inside = Path(path) / "reward_model" / "modeling"
    return str(inside) if inside.is_dir() else path


def _make_normaliser(r: RewardConfig, model: RewardModel, path: str) -> Normaliser | None:
    if r.reward_normalisation == "running":
        return RunningNormaliser()
    if r.reward_normalisation == "fixed":
        if model.statistics is None:
            raise UserError(
                f"--reward_normalisation fixed: {path} holds no reward_statistics.json with the mean and standard deviation "
                "of its scores; use running, or train it with `rlvr reward-model`"
            )
        return FixedNormaliser(model.statistics)
    return None


def _choose_encoding(
    config: Config, path: str, model: RewardModel, tokenizer: PreTrainedTokenizerBase, note: Note
) -> Encode:
    """The tokens as they were sampled where the reward model reads the same ones; else the texts are encoded anew."""
    m = config.model
    known = model.decoder.get_input_embeddings().num_embeddings
    if (source := _tokenizer_source(path, m.rm_pretrain)) is None:
        if known < len(tokenizer):
            raise UserError(
                f"--rm_checkpoint_path {path} holds no tokenizer, and its {known} embeddings are too few for the actor's "
                f"vocabulary of {len(tokenizer)}: save the reward model's tokenizer in its folder"
            )
        note(f"the reward model {path} holds no tokenizer: taken to read the actor's tokens")
        return sampled_tokens
    theirs = load_tokenizer(source, m.trust_remote_code)
    if theirs.get_vocab() == tokenizer.get_vocab():
        return sampled_tokens
    name = auto_template(theirs)
    note(
        f"the reward model {path} has another tokenizer than the actor: question and response are encoded anew for it, with "
        f"the template {name}"
    )
    return Retokenize(Conversation(ConversationTemplate.load(name), theirs))


def _tokenizer_source(path: str, base: str | None) -> str | None:
    """Where the reward model's tokenizer is; None where its folder has none."""
    folder = Path(path)
    if not folder.is_dir() or any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return path
    return base if is_adapter(folder) else None


def describe_rewards(config: Config) -> str:
    """One line on the rewards and the environment, for the header of a run."""
    parts = [*function_names(config)]
    if config.model.rm_checkpoint_path:
        parts.append(f"{NEURAL} {config.model.rm_checkpoint_path}")
    kind = config.env.rl_env_type or ("multi_objective" if is_multi_objective(config) else None)
    played = f", played with {config.env.environment}" if config.env.environment else ""
    return ", ".join(parts) + (f" ({kind})" if kind else "") + played
