"""`Project`: one training run from `LLMTrainingParams`."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rlvr.compat.llm import LLMTrainingParams
from rlvr.compat.llm_config import ppo_config, supervised_config
from rlvr.compat.llm_table import RL
from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.errors import UserError

BUILTIN = "builtin"
AnyConfig = Config | SFTConfig | RewardTrainingConfig


@dataclass(kw_only=True)
class Project:
    """A run.

    Args:
        params: what to train and how.
        backend: where: `local` is this machine (under torchrun, all processes that it started).
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
        from rlvr.pipeline import train_reward_model, train_sft

        return train_reward_model(config) if isinstance(config, RewardTrainingConfig) else train_sft(config)


def _make_config(params: LLMTrainingParams, prompts: int) -> AnyConfig:
    return ppo_config(params, prompts) if params.trainer in RL else supervised_config(params)


def _copy_data(params: LLMTrainingParams, config: AnyConfig) -> Path:
    """Write the rows of the data into the project's folder, in the main process. Returns the file."""
    from rlvr.boost import process as processes
    from rlvr.data.readers import read_rows
    from rlvr.run_folder import prepare_folder

    target = Path(params.project_name) / "data" / "train.jsonl"
    if processes.start(config.train.seed, config.train.num_threads).is_main:
        prepare_folder(Path(params.project_name), params.resume)  # another run's data must not be written over
        if not (params.resume and target.exists()):
            rows = read_rows(params.data_path, "train")
            target.parent.mkdir(exist_ok=True)
            lines = [json.dumps(row.values, ensure_ascii=False) + "\n" for row in rows]
            target.write_text("".join(lines), encoding="utf-8")
    processes.barrier()
    return target


def _count_prompts(params: LLMTrainingParams) -> int:
    from rlvr.data.readers import read_problems

    column = params.prompt_text_column or params.text_column
    return len(read_problems([params.data_path], split="train", question_column=column, seed=0))
