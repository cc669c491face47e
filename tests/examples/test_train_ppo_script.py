"""The examples of ColossalChat's `train_ppo.py` (reference document 0) as they stand, on a small model, with small batches."""

import argparse
import importlib.util
import json
from pathlib import Path

import pytest
from seed_examples import TRAIN_PPO_NEURAL, TRAIN_PPO_RULES, flags
from transformers import AutoModelForCausalLM

import rlvr
from rlvr.cli.main import main
from rlvr.config import base_config, by_section
from rlvr.models.critic import Critic
from rlvr.models.reward_model import RewardModel
from rlvr.prompting.template import template_dir

pytestmark = pytest.mark.usefixtures("process")
SIZES = "--max_seq_len 4 --max_length 128 --experience_batch_size 4 --train_batch_size 4".split()


@pytest.fixture
def folder(micro_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the commands name, in the working folder."""
    rows = [{"question": f"What is {i} + {i}?", "answer": f"twice {i}\n#### {2 * i}"} for i in range(10, 20)]
    for name in ("prompts", "math_prompts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "template.json").write_text((template_dir() / "tiny.json").read_text())
    RewardModel.from_base(micro_model, seed=1).save_pretrained(tmp_path / "rm_checkpoint")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_ppo_training_with_neural_reward_model(folder, micro_model) -> None:
    instead = {"meta-llama/Llama-2-7b": micro_model, "10": "3"}
    assert main(["train", *flags(TRAIN_PPO_NEURAL, "train_ppo.py", **instead), *SIZES]) == 0
    save = folder / "ppo_checkpoint"
    AutoModelForCausalLM.from_pretrained(save / "actor" / "modeling")
    Critic.from_pretrained(save / "critic" / "modeling")
    rows = rows_of(save)
    assert len(rows) == 3 and "reward/reward_model" in rows[0]
    assert rows[-1]["episode"] == 3 * 2 * 4  # episodes x collect steps x responses


def test_ppo_training_with_rule_based_rewards(folder, micro_model) -> None:
    words = flags(TRAIN_PPO_RULES, "train_ppo.py", **{"meta-llama/Llama-2-7b": micro_model})
    assert main(["train", *words, *SIZES]) == 0
    [save] = (folder / "runs").iterdir()  # where it goes without --save_path
    (row,) = rows_of(save)  # one episode, as documented
    assert "reward/gsm8k_reward_fn" in row and "reward/reward_model" not in row
    assert (save / "actor" / "modeling").is_dir() and (save / "critic" / "modeling").is_dir()


def test_train_takes_the_arguments_of_a_parser(monkeypatch) -> None:
    path = Path(__file__).parents[2] / "scripts" / "train_rlvr.py"
    spec = importlib.util.spec_from_file_location("train_rlvr", path)
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    trained = []
    monkeypatch.setattr(
        rlvr, "train", lambda **settings: trained.append(base_config(by_section(settings))), raising=False
    )
    assert script.train(argparse.Namespace(pretrain="tiny", num_episodes=3, max_seq_len=20)) is None
    assert (trained[0].train.num_episodes, trained[0].rollout.max_new_tokens) == (3, 20)
