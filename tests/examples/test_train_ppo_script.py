"""The examples of ColossalChat's `train_ppo.py` (reference document 0): the same flags, a small model, two answers a step."""

import json
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from rlvr.cli.main import main
from rlvr.models.critic import Critic
from rlvr.models.reward_model import RewardModel

pytestmark = pytest.mark.usefixtures("process")
SIZES = ["--max_seq_len", "4", "--max_length", "128", "--experience_batch_size", "4", "--train_batch_size", "4"]


@pytest.fixture
def prompts(tmp_path) -> Path:
    """A folder of prompts, as in the examples."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    rows = [{"question": f"What is {i} + {i}?", "answer": f"twice {i}\n#### {2 * i}"} for i in range(10, 20)]
    (folder / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def template(tmp_path: Path) -> str:
    """A template file of one's own."""
    from rlvr.prompting.template import template_dir

    path = tmp_path / "template.json"
    path.write_text((template_dir() / "tiny.json").read_text())
    return str(path)


def rows_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_ppo_training_with_neural_reward_model(micro_model, prompts, tmp_path) -> None:
    RewardModel.from_base(micro_model, seed=1).save_pretrained(tmp_path / "rm_checkpoint")
    save = tmp_path / "ppo_checkpoint"
    status = main(
        [
            "train",
            *("--pretrain", micro_model),
            *("--rm_pretrain", micro_model),
            *("--prompt_dataset", str(prompts)),
            *("--conversation_template_config", template(tmp_path)),
            *("--plugin", "zero2"),
            *("--rm_checkpoint_path", str(tmp_path / "rm_checkpoint")),
            *("--num_episodes", "3"),
            *("--save_path", str(save)),
            *SIZES,
        ]
    )
    assert status == 0
    AutoModelForCausalLM.from_pretrained(save / "actor" / "modeling")
    Critic.from_pretrained(save / "critic" / "modeling")
    rows = rows_of(save)
    assert len(rows) == 3 and "reward/reward_model" in rows[0]
    assert rows[-1]["episode"] == 3 * 2 * 4  # episodes x collect steps x responses


def test_ppo_training_with_rule_based_rewards(micro_model, prompts, tmp_path) -> None:
    save = tmp_path / "run"
    status = main(
        [
            "train",
            *("--pretrain", micro_model),
            *("--rm_pretrain", micro_model),
            *("--prompt_dataset", str(prompts)),
            *("--conversation_template_config", template(tmp_path)),
            "--no_neural_reward_model",
            *("--reward_functions", "gsm8k_reward_fn"),
            *("--plugin", "zero2"),
            *("--save_path", str(save)),
            *SIZES,
        ]
    )
    assert status == 0
    (row,) = rows_of(save)  # one episode, as documented
    assert "reward/gsm8k_reward_fn" in row and "reward/reward_model" not in row
    assert (save / "actor" / "modeling").is_dir() and (save / "critic" / "modeling").is_dir()
