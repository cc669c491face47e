"""`docs/other_toolkits.md`: its calls are calls; the same things are trained in the tests beside."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import rlvr
from rlvr.compat import aitraining_project as project
from rlvr.compat import trl
from rlvr.validate.ppo import check_config

PAGE = (Path(__file__).parents[2] / "docs" / "other_toolkits.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=["aitraining", "trl", "train"])
def test_code_runs_up_to_where_training_would_begin(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    signature = inspect.signature(trl.PPOTrainer)

    class Trainer:
        def __init__(self, **arguments: Any) -> None:
            signature.bind(**arguments)

        def train(self) -> None:
            begun.append(self)

        def save_model(self, folder: str) -> None: ...

    def create(made: project.Project) -> None:
        begun.append(check_config(project.ppo_config(made.params, prompts=64)))

    def train(**settings: Any) -> None:
        from rlvr.config import base_config, by_section

        begun.append(check_config(base_config(by_section(settings))))

    monkeypatch.setattr(project.Project, "create", create)
    monkeypatch.setattr(trl, "PPOTrainer", Trainer)
    monkeypatch.setattr(rlvr, "train", train, raising=False)
    names = ("tokenizer", "policy", "reward_model", "value_model", "train_dataset", "eval_dataset")
    exec(compile(code, "other_toolkits.md", "exec"), dict.fromkeys(names))
    assert len(begun) == 1
