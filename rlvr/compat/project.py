"""`Project`: one training run from `LLMTrainingParams`."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

from rlvr.compat.llm import LLMTrainingParams
from rlvr.compat.llm_config import ppo_config, supervised_config
from rlvr.compat.llm_table import RL
from rlvr.config import RewardTrainingConfig
from rlvr.errors import UserError

BUILTIN = "builtin"


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
        params = self._with_copied_data() if self.process else self.params
        if params.trainer in RL:
            from rlvr.api import train

            return train(ppo_config(params, _count_prompts(params)))
        from rlvr.pipeline import train_reward_model, train_sft

        config = supervised_config(params)
        return train_reward_model(config) if isinstance(config, RewardTrainingConfig) else train_sft(config)

    def _with_copied_data(self) -> LLMTrainingParams:
        from rlvr.boost import process as processes
        from rlvr.data.readers import read_rows
        from rlvr.run_folder import prepare_folder

        if self.params.data_path.partition(":")[0] == BUILTIN:
            return self.params
        target = Path(self.params.project_name) / "data" / "train.jsonl"
        if processes.start(self.params.seed).is_main:
            # The data of another run must not be written over.
            prepare_folder(Path(self.params.project_name), self.params.resume)
            if not (self.params.resume and target.exists()):
                rows = read_rows(self.params.data_path, "train")
                target.parent.mkdir(exist_ok=True)
                lines = [json.dumps(row.values, ensure_ascii=False) + "\n" for row in rows]
                target.write_text("".join(lines), encoding="utf-8")
        processes.barrier()
        return replace(self.params, data_path=str(target))


def _count_prompts(params: LLMTrainingParams) -> int:
    from rlvr.data.readers import read_problems

    column = params.prompt_text_column or params.text_column
    return len(read_problems([params.data_path], split="train", question_column=column, seed=0))
