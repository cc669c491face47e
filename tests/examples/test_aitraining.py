"""The examples of aitraining's PPO page (reference document 3) as they stand: command line and Python, a reward model and then PPO."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from seed_examples import (
    AITRAINING_OBJECTIVES,
    AITRAINING_PPO,
    AITRAINING_PROMPTS,
    AITRAINING_PYTHON,
    AITRAINING_QUICK_START,
    AITRAINING_REWARD_MODEL,
    flags,
)

from rlvr import LLMTrainingParams, Project
from rlvr.cli.main import main

pytestmark = pytest.mark.usefixtures("process")
MODEL = "google/gemma-3-270m"
QUICK = "--rl-max-new-tokens 4 --rl-rollout-batch-size 8 --rl-num-ppo-epochs 1 --chat-template tiny".split()


def write(path: Path, rows: list[dict]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def metrics(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights_of(project: Path) -> Path:
    return project / "actor" / "modeling" / "model.safetensors"


@pytest.fixture(scope="module")
def reward_model(micro_model: str, tmp_path_factory: pytest.TempPathFactory, process: object) -> Path:
    """Step 1 of the page's pipeline, for all that come after it."""
    folder = tmp_path_factory.mktemp("pages")
    rows = [{"prompt": f"{i}+1=", "chosen": str(i + 1), "rejected": f"{i}?"} for i in range(10, 26)]
    write(folder / "preferences.jsonl", rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(flags(AITRAINING_REWARD_MODEL, "aitraining", **{MODEL: micro_model})) == 0
    return folder / "reward-model"


@pytest.fixture
def page(reward_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with what the page's examples name: prompts only, and the reward model."""
    (tmp_path / "prompts.jsonl").write_text(AITRAINING_PROMPTS)
    (tmp_path / "reward-model").symlink_to(reward_model)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [AITRAINING_QUICK_START, AITRAINING_PPO], ids=["quick start", "step 2"])
def test_full_pipeline_reward_model_then_ppo(command, page, micro_model) -> None:
    assert main(flags(command, "aitraining", **{MODEL: micro_model})) == 0
    rows = metrics(page / "ppo-model")
    assert "reward/reward_model" in rows[-1] and rows[-1]["episode"] == 32
    weights = [load_file(f) for f in (Path(micro_model) / "model.safetensors", weights_of(page / "ppo-model"))]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_python_api(page, micro_model) -> None:
    code = AITRAINING_PYTHON.replace(MODEL, micro_model)
    exec(code.replace("autotrain.trainers.clm.params", "rlvr").replace("autotrain.project", "rlvr"), {})
    assert weights_of(page / "ppo-model").is_file()


def test_multi_objective_rewards(micro_model, tmp_path) -> None:
    rows = [{"text": f"{i}+1=", "answer": str(i + 1)} for i in range(8)]
    needed = {
        "model": micro_model,
        "data_path": write(tmp_path / "prompts.jsonl", rows),
        "project_name": str(tmp_path / "ppo-model"),
    }
    quick = {"model_ref": micro_model, "rl_max_new_tokens": 4, "rl_rollout_batch_size": 8, "chat_template": "tiny"}
    named = {"LLMTrainingParams": LLMTrainingParams, "more": needed | quick}
    exec(AITRAINING_OBJECTIVES.replace("...", "**more,"), named)
    row = metrics(Project(params=named["params"], backend="local", process=True).create())[-1]
    assert {"reward/correctness", "reward/formatting"} <= set(row)  # a curve for each objective
    assert row["objective/scores"] == pytest.approx(
        row["reward/correctness"] + 0.1 * row["reward/formatting"], abs=1e-6
    )


def test_a_reward_model_that_no_objective_pays_is_told(page, micro_model, capsys) -> None:
    write(page / "prompts.jsonl", [{"text": f"{i}+1=", "answer": str(i + 1)} for i in range(8)])
    objectives = ["--rl-multi-objective", "--rl-reward-weights", '{"correctness": 1.0, "formatting": 0.1}']
    assert main([*flags(AITRAINING_PPO, "aitraining", **{MODEL: micro_model}), *objectives, *QUICK]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "reward_model: scored and logged, but not paid" in said and 'add {"reward_model": 1.0}' in said


@pytest.mark.parametrize("kind", ["text_generation", "preference_comparison"])
def test_environment_types(kind, page, micro_model) -> None:
    words = flags(AITRAINING_PPO, "aitraining", **{MODEL: micro_model})
    assert main([*words, "--rl-env-type", kind, *QUICK]) == 0
    row = metrics(page / "ppo-model")[-1]
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
