"""`LLMTrainingParams` -> the settings of the trainer that they name."""

import math
from pathlib import Path
from typing import Any

from rlvr.compat.llm import LLMTrainingParams
from rlvr.compat.llm_table import SUPERVISED, TABLE
from rlvr.config import Config, RewardTrainingConfig, SFTConfig, base_config, reward_training_config, sft_config
from rlvr.errors import UserError

Tree = dict[str, dict[str, Any]]
GROUP = 8
"""Responses to each prompt where they are compared and nothing else was said."""
MINI_BATCHES = 4
"""Mini-batches in a batch of responses where nothing else was said."""


def ppo_config(params: LLMTrainingParams, prompts: int) -> Config:
    """The settings of `rlvr train` for the trainers `ppo` and `grpo`.

    Args:
        prompts: rows of the data, which `epochs` counts passes over.

    Raises:
        UserError: batch sizes that don't divide.
    """
    tree = _by_table(params)
    generations = _generations(params)
    batch, mini, rollout = _batches(params)
    if rollout % generations:
        raise UserError(
            f"rl_rollout_batch_size {rollout} does not hold whole groups of rl_num_generations {generations} responses: give a "
            f"multiple of {generations}"
        )
    _put(tree, "data.prompt_dataset", [params.data_path])
    _put(tree, "data.question_column", params.prompt_text_column or params.text_column)
    _put(tree, "model.rm_checkpoint_path", part_of_run(params.rl_reward_model_path, "reward_model"))
    _put(tree, "model.ref_model", part_of_run(params.model_ref, "actor"))
    _put(tree, "reward.reward_functions", _functions(params))
    _put(tree, "rollout.num_generations", generations)
    _put(tree, "rollout.experience_batch_size", rollout)
    _put(tree, "train.critic_lr", params.lr if params.trainer == "ppo" else None)
    _put(tree, "train.train_batch_size", batch)
    _put(tree, "train.accumulation_steps", mini // batch)
    _put(tree, "train.num_collect_steps", 1)
    _put(tree, "train.num_episodes", max(1, math.ceil(params.epochs * prompts * generations / rollout)))
    if params.trainer == "grpo":
        _put(tree, "algo.preset", "grpo")
    return base_config(tree)


def supervised_config(params: LLMTrainingParams) -> SFTConfig | RewardTrainingConfig:
    """The settings of `rlvr sft` or `rlvr reward-model`. A named prompt column goes through the conversation template, as
    the prompts of `ppo` do."""
    tree = _by_table(params)
    _put(tree, "data.question_column", params.prompt_text_column)
    if params.trainer == "reward":
        _put(tree, "data.preference_dataset", [params.data_path])
        _put(tree, "data.text_column", params.text_column)
        return reward_training_config(tree)
    _put(tree, "data.dataset", [params.data_path])
    _put(tree, "data.answer_column" if params.prompt_text_column else "data.text_column", params.text_column)
    return sft_config(tree)


def part_of_run(path: str | None, role: str) -> str | None:
    """`PROJECT/ROLE/modeling` where `path` is the folder of a run that has one; else `path` as it is."""
    if path is None:
        return None
    inside = Path(path) / role / "modeling"
    return str(inside) if inside.is_dir() else path


def _by_table(params: LLMTrainingParams) -> Tree:
    """What the table maps one to one; None leaves the default."""
    tree: Tree = {}
    for name, row in TABLE.items():
        place = (row.supervised or row.field) if params.trainer in SUPERVISED else row.field
        if place is not None and params.trainer in row.trainers:
            _put(tree, place, getattr(params, name))
    _put(tree, "model.pretrain", part_of_run(params.model, "actor"))
    return tree


def _put(tree: Tree, place: str, value: Any) -> None:
    section, name = place.split(".")
    if value is not None:
        tree.setdefault(section, {})[name] = value


def _generations(params: LLMTrainingParams) -> int:
    if params.rl_num_generations is not None:
        return params.rl_num_generations
    return GROUP if params.trainer == "grpo" or params.rl_env_type == "preference_comparison" else 1


def _batches(params: LLMTrainingParams) -> tuple[int, int, int]:
    """Responses of a pass, of an optimizer step, of an update."""
    mini = params.rl_mini_batch_size
    batch = min(params.batch_size, mini)
    rollout = params.rl_rollout_batch_size or MINI_BATCHES * math.lcm(mini, _generations(params))
    if mini % batch:
        raise UserError(
            f"rl_mini_batch_size {mini} is no multiple of batch_size {batch}: an optimizer step takes whole passes; choose sizes "
            "that divide"
        )
    if rollout % mini:
        raise UserError(
            f"rl_rollout_batch_size {rollout} is no multiple of rl_mini_batch_size {mini}: choose sizes that divide"
        )
    return batch, mini, rollout


def _functions(params: LLMTrainingParams) -> list[str]:
    """`default` is the reward model alone; without one, and without objectives by name, right answers are paid."""
    if params.rl_reward_fn not in (None, "default"):
        return [str(params.rl_reward_fn)]
    paid = params.rl_reward_model_path or params.rl_reward_weights
    return [] if paid else ["correctness"]
