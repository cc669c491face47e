"""The examples of aitraining's PPO page (reference document 3): command line and Python, a reward model and then PPO."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlvr import LLMTrainingParams, Project
from rlvr.cli.main import main

pytestmark = pytest.mark.usefixtures("process")
QUICK = [
    "--rl-max-new-tokens",
    "4",
    "--rl-rollout-batch-size",
    "8",
    "--rl-num-ppo-epochs",
    "1",
    "--chat-template",
    "tiny",
]


@pytest.fixture
def prompts(tmp_path) -> str:
    """Prompts only: the model generates the responses."""
    texts = ["What is machine learning?", "Explain quantum computing.", "Write a haiku about coding."]
    return write(tmp_path / "prompts.jsonl", [{"text": text} for text in texts])


@pytest.fixture
def preferences(tmp_path) -> str:
    rows = [{"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": f"{i}?"} for i in range(10, 26)]
    return write(tmp_path / "preferences.jsonl", rows)


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train_reward_model(model: str, preferences: str, project: Path) -> None:
    status = main(
        [
            "llm", "--train", "--model", model, "--data-path", preferences, "--project-name", str(project), "--trainer", "reward",
            "--prompt-text-column", "prompt", "--text-column", "chosen", "--rejected-text-column", "rejected",
            "--chat-template", "tiny", "--lr", "1e-3",
        ]
    )  # fmt: skip
    assert status == 0


def test_full_pipeline_reward_model_then_ppo(micro_model, preferences, prompts, tmp_path) -> None:
    train_reward_model(micro_model, preferences, tmp_path / "reward-model")
    command = [
        "llm", "--train", "--model", micro_model, "--data-path", prompts, "--project-name", str(tmp_path / "ppo-model"),
        "--trainer", "ppo", "--rl-reward-model-path", str(tmp_path / "reward-model"), "--rl-kl-coef", "0.1",
        "--rl-clip-range", "0.2", *QUICK,
    ]  # fmt: skip
    assert main(command) == 0
    rows = metrics(tmp_path / "ppo-model")
    assert "reward/reward_model" in rows[-1] and rows[-1]["episode"] == 8
    weights = [load_file(f) for f in (Path(micro_model) / "model.safetensors", weights_of(tmp_path / "ppo-model"))]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def weights_of(project: Path) -> Path:
    return project / "actor" / "modeling" / "model.safetensors"


def test_python_api(micro_model, preferences, prompts, tmp_path) -> None:
    train_reward_model(micro_model, preferences, tmp_path / "reward-model")
    params = LLMTrainingParams(
        model=micro_model,
        data_path=prompts,
        project_name=str(tmp_path / "ppo-model"),
        trainer="ppo",
        rl_reward_model_path=str(tmp_path / "reward-model"),
        # PPO hyperparameters
        rl_gamma=0.99,
        rl_gae_lambda=0.95,
        rl_kl_coef=0.1,
        rl_clip_range=0.2,
        rl_num_ppo_epochs=4,
        epochs=1,
        batch_size=4,
        lr=1e-5,
        rl_max_new_tokens=4,
        rl_rollout_batch_size=8,
        chat_template="tiny",
    )
    project = Project(params=params, backend="local", process=True)
    folder = project.create()
    assert folder == tmp_path / "ppo-model" and weights_of(folder).is_file()


def test_multi_objective_rewards(micro_model, tmp_path) -> None:
    rows = [{"text": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]
    params = LLMTrainingParams(
        model=micro_model,
        data_path=write(tmp_path / "prompts.jsonl", rows),
        project_name=str(tmp_path / "ppo-model"),
        trainer="ppo",
        rl_multi_objective=True,
        rl_env_type="multi_objective",
        rl_reward_weights='{"correctness": 1.0, "formatting": 0.1}',
        model_ref=micro_model,
        rl_max_new_tokens=4,
        rl_rollout_batch_size=8,
        chat_template="tiny",
    )
    row = metrics(Project(params=params, backend="local", process=True).create())[-1]
    assert {"reward/correctness", "reward/formatting"} <= set(row)  # a curve for each objective
    assert row["objective/scores"] == pytest.approx(
        row["reward/correctness"] + 0.1 * row["reward/formatting"], abs=1e-6
    )


@pytest.mark.parametrize("kind", ["text_generation", "preference_comparison"])
def test_environment_types(kind, micro_model, preferences, prompts, tmp_path) -> None:
    train_reward_model(micro_model, preferences, tmp_path / "reward-model")
    command = [
        "llm", "--train", "--model", micro_model, "--data-path", prompts, "--project-name", str(tmp_path / "ppo-model"),
        "--trainer", "ppo", "--rl-reward-model-path", str(tmp_path / "reward-model"), "--rl-env-type", kind, *QUICK,
    ]  # fmt: skip
    assert main(command) == 0
    row = metrics(tmp_path / "ppo-model")[-1]
    if kind == "preference_comparison":  # a win rate within each group has this mean
        assert row["objective/scores"] == pytest.approx(0.5)
    else:
        assert row["objective/scores"] == pytest.approx(row["reward/reward_model"])


def test_grpo_and_sft_from_the_same_command(micro_model, tmp_path) -> None:
    rows = [{"text": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]
    data = write(tmp_path / "prompts.jsonl", rows)
    sft = ["llm", "--train", "--trainer", "sft", "--model", micro_model, "--project-name", str(tmp_path / "sft")]
    columns = ["--prompt-text-column", "text", "--text-column", "answer", "--chat-template", "tiny", "--lr", "1e-3"]
    assert main([*sft, "--data-path", data, *columns]) == 0
    assert metrics(tmp_path / "sft")
    grpo = ["llm", "--train", "--trainer", "grpo", "--model", str(tmp_path / "sft"), "--data-path", data]
    rule = ["--rl-reward-fn", "correctness", "--project-name", str(tmp_path / "grpo")]
    assert main([*grpo, *rule, *QUICK]) == 0
    assert not (tmp_path / "grpo" / "critic").exists()
    assert "grpo" in (tmp_path / "grpo" / "config.yaml").read_text()
