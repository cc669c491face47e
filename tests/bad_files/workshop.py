"""What is damaged: a small run with its checkpoint and journal, an evaluation, a model, made once and copied for each damage."""

import json
import shutil
from pathlib import Path
from typing import Any

from saved_models import save_micro_model

from rlvr.cli.main import main

REWARD = ("--reward_functions", "gsm8k_reward_fn")
SMALL = (
    "--num_collect_steps", "1", "--num_update_steps", "1", "--experience_batch_size", "4", "--train_batch_size", "4",
    "--max_new_tokens", "4", "--mixed_precision", "fp32", "--conversation_template_config", "tiny",
)  # fmt: skip


def rows(path: Path, lines: list[Any]) -> None:
    """Write them as JSONL."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


class Workshop:
    """Whole things in a folder, each made when it is first asked for.

    Args:
        folder: an empty one.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = save_micro_model(folder / "model")

    def words(self, *more: str) -> list[str]:
        """A command that trains the small model."""
        return ["train", "--pretrain", self.model, *REWARD, *SMALL, *more]

    def whole(self, name: str) -> Path:
        """The folder of `model`, `run` or `evaluation`."""
        path = self.folder / name
        if not path.exists():
            {"run": self._train, "evaluation": self._evaluate}[name](path)
        return path

    def copy(self, name: str, target: Path) -> None:
        """A copy that may be damaged."""
        shutil.copytree(self.whole(name), target, ignore=shutil.ignore_patterns(".lock"))

    def _train(self, path: Path) -> None:
        flags = ("--num_episodes", "1", "--save_interval", "1", "--journal", "2", "--eval_samples", "2")
        assert main(self.words(*flags, "--save_path", str(path))) == 0

    def _evaluate(self, path: Path) -> None:
        flags = (
            "--max_samples",
            "2",
            "--max_new_tokens",
            "4",
            "--conversation_template_config",
            "tiny",
            "--num_threads",
            "1",
        )
        assert main(["eval", self.model, "--dataset", "builtin", *flags, "--save_path", str(path)]) == 0
