"""`Project`: one training run from `LLMTrainingParams`, whose settings `ppo_config` and `supervised_config` make.

The run itself is that of `rlvr train`, `rlvr sft` or `rlvr reward-model`; nothing is trained in another way here.
"""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlvr.compat.aitraining import PARAMETERS, RL, SUPERVISED, LLMTrainingParams
from rlvr.config import Config, RewardTrainingConfig, SFTConfig, base_config, reward_training_config, sft_config
from rlvr.config.reward_options import reads_tags
from rlvr.errors import UserError
from rlvr.prompting.template import AS_IS

BUILTIN, AUTO = "builtin", "auto"
AnyConfig = Config | SFTConfig | RewardTrainingConfig
Tree = dict[str, dict[str, Any]]
GROUP_SIZE = 8
"""Responses to each prompt where they are compared and nothing else was said."""
MINI_BATCHES = 4
"""Mini-batches in a batch of responses where nothing else was said."""


@dataclass(kw_only=True)
class Project:
    """A training run with aitraining's call.

    Args:
        params: the run's parameters.
        backend: `local` is this machine (under torchrun, all processes that it started).
        process: copy the data into the project's folder first, and train on the copy, so that the folder holds all that the
            run came from. Built-in problems are made from a seed and are not copied.

    Raises:
        UserError: another backend.
    """

    params: LLMTrainingParams
    backend: str = "local"
    process: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.params, LLMTrainingParams):
            raise UserError(f"Project(params=...): must be LLMTrainingParams, not {type(self.params).__name__}")
        if self.backend != "local":
            raise UserError(
                f"Project(backend={self.backend!r}): the only backend is 'local'; for several GPUs or machines start the "
                "same script with torchrun"
            )

    def create(self) -> Path:
        """Train. Returns the project's folder.

        Raises:
            UserError: parameters, data or models that can't be used.
            Interrupted: after SIGINT or SIGTERM, with a checkpoint saved.
        """
        params = self.params
        prompts = _count_prompts(params) if params.trainer in RL else 0
        config = _make_config(params, prompts)
        if self.process and params.data_path.partition(":")[0] != BUILTIN:
            copied = _copy_data(params, config)
            config = _make_config(replace(params, data_path=str(copied)), prompts)
        if isinstance(config, Config):
            from rlvr.api import train

            return train(config)
        from rlvr.run.supervised import train_reward_model, train_sft

        return train_reward_model(config) if isinstance(config, RewardTrainingConfig) else train_sft(config)


def _make_config(params: LLMTrainingParams, prompts: int) -> AnyConfig:
    return ppo_config(params, prompts) if params.trainer in RL else supervised_config(params)


def _copy_data(params: LLMTrainingParams, config: AnyConfig) -> Path:
    """Write the rows of the data into the project's folder, in the main process. Returns the file."""
    from rlvr.boost import process as processes
    from rlvr.data.rows import read_rows
    from rlvr.run.folder import prepare_folder

    target = Path(params.project_name) / "data" / "train.jsonl"
    if processes.start(config.train.seed, config.train.num_threads).is_main:
        # Raises where the folder holds another run, whose data would be written over. Training takes the lock anew.
        prepare_folder(Path(params.project_name), params.resume).lock.release()
        if not (params.resume and target.exists()):
            rows = read_rows(params.data_path, "train")
            target.parent.mkdir(exist_ok=True)
            lines = [json.dumps(row.values, ensure_ascii=False, default=str) + "\n" for row in rows]
            target.write_text("".join(lines), encoding="utf-8")
    processes.barrier()
    return target


def _count_prompts(params: LLMTrainingParams) -> int:
    from rlvr.data.readers import read_problems

    column = params.prompt_text_column or params.text_column
    return len(read_problems([params.data_path], split="train", question_column=column, seed=0))


# From parameters to settings.


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
    config = base_config(tree)
    if params.chat_template == AUTO and not reads_tags(config):
        config.template.conversation_template_config = AS_IS
    return config


def supervised_config(params: LLMTrainingParams) -> SFTConfig | RewardTrainingConfig:
    """The settings of `rlvr sft` or `rlvr reward-model`. A named prompt column goes through the conversation template, which leaves
    prompts as they are unless one is named, as those of `ppo`."""
    tree = _by_table(params)
    _put(tree, "template.conversation_template_config", AS_IS if params.chat_template == AUTO else params.chat_template)
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
    """The settings that `PARAMETERS` maps one to one; None leaves the default."""
    tree: Tree = {}
    for name, parameter in PARAMETERS.items():
        place = (parameter.supervised or parameter.field) if params.trainer in SUPERVISED else parameter.field
        if place is not None and params.trainer in parameter.trainers:
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
    return GROUP_SIZE if params.trainer == "grpo" or params.rl_env_type == "preference_comparison" else 1


def _batches(params: LLMTrainingParams) -> tuple[int, int, int]:
    """Responses of a forward and backward pass, of an optimizer step, and of an update."""
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
    """The rules of the run: `default` is the reward model alone; without one, and without objectives, right answers are paid."""
    if params.rl_reward_fn not in (None, "default"):
        return [str(params.rl_reward_fn)]
    paid = params.rl_reward_model_path or params.rl_reward_weights
    return [] if paid else ["correctness"]


AutoTrainProject = Project
"""aitraining's name of it."""
