"""`examples/`: what the commands of their READMEs don't show (those run in test_page_commands.py)."""

import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from rewards import Sample, Tags, resolve
from rewards.call import score
from rlvr.cli.main import main

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path.name for path in EXAMPLES.iterdir() if path.is_dir() and (path / "README.md").is_file())


def test_there_are_seven_each_in_the_list_and_on_the_site() -> None:
    listed = set(re.findall(r"\((\w+)/README\.md\)", (EXAMPLES / "README.md").read_text()))
    pages = ROOT / "docs" / "examples"
    shown = {name for name in FOLDERS if f'"examples/{name}/README.md"' in (pages / f"{name}.md").read_text()}
    assert set(re.findall(r"\((\w+)\.md\)", (pages / "index.md").read_text())) == shown
    assert set(FOLDERS) == listed == shown and len(FOLDERS) == 7


@pytest.mark.parametrize("name", FOLDERS)
def test_each_says_what_it_takes_and_what_it_gives(name: str) -> None:
    text = (EXAMPLES / name / "README.md").read_text()
    for word in ("**Machine:**", "**Time:**", "**What one should see:**"):
        assert text.count(word) == 1
    files = {path.name for path in (EXAMPLES / name).iterdir() if path.suffix in (".yaml", ".py")}
    assert files and all(file in text for file in files)


@pytest.fixture
def qwen3(tmp_path: Path) -> str:
    """The configuration of Qwen3-0.6B, without weights."""
    from transformers import Qwen3Config

    Qwen3Config(
        vocab_size=151_936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40_960, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
    ).save_pretrained(tmp_path / "qwen3")  # fmt: skip
    return str(tmp_path / "qwen3")


def test_gsm8k_with_qwen3_is_a_run_that_fits_one_gpu(qwen3: str, capsys) -> None:
    config = EXAMPLES / "gsm8k_qwen3" / "run.yaml"
    assert yaml.safe_load(config.read_text())["model"]["pretrain"] == "Qwen/Qwen3-0.6B"
    assert main(["train", "--config", str(config), "--pretrain", qwen3, "--dry_run"]) == 0
    out = capsys.readouterr().out
    (weights,) = {int(n.replace(",", "")) for n in re.findall(r"^  actor +([\d,]+)", out, re.MULTILINE)}
    assert weights == 596_049_920  # the model card's 0.6B
    (gib,) = (float(n) for n in re.findall(r": about ([\d.]+) GiB, an estimate", out))
    said = float(re.search(r"estimates (\d+) GiB", (config.parent / "README.md").read_text())[1])
    assert round(gib) == said < 48


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_our_rewards_train_a_model_in_trl(micro_model: str, tmp_path: Path, monkeypatch) -> None:
    """One optimizer step of TRL's trainer; what our functions paid is among its logs."""
    pytest.importorskip("trl")
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    script = load(EXAMPLES / "rewards_in_trl" / "train.py")
    given = {"per_device_train_batch_size": 8, "max_completion_length": 8, "logging_steps": 1}
    config = script.GRPOConfig
    monkeypatch.setattr(script, "GRPOConfig", lambda **arguments: config(**(arguments | given)))
    trainer = script.main(
        ["--model", micro_model, "--max_steps", "1", "--problems", "8", "--output_dir", str(tmp_path)]
    )
    logged = {name: value for row in trainer.state.log_history for name, value in row.items()}
    assert trainer.state.global_step == 1
    assert {"rewards/gsm8k_reward_fn/mean", "rewards/repetition_penalty_fn/mean", "reward"} <= set(logged)


@pytest.fixture
def steps() -> Iterator[object]:
    import rewards.registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rewards.registry, "_registered", dict(rewards.registry._registered))
        yield resolve(f"{EXAMPLES / 'custom_reward' / 'steps.py'}:steps")


@pytest.mark.parametrize(
    ("working", "answer", "paid"),
    [
        ("12+7=19;19-4=15", "15", 1.3),
        ("12+7=19;19-4=15", "16", 0.3),
        ("12+7=19;19-4=14", "15", 1.15),  # the second is false
        ("1+1=2;2+2=4", "16", 0.0),  # true, and nothing to do with the question
        ("12+7=19;12+7=19", "16", 0.15),  # the second does not go on from the first
        ("12+7=19;19+1=20;20+1=21", "16", 0.3),  # longer than the question
        ("", "15", 1.0),
    ],
)
def test_the_custom_reward(steps, working: str, answer: str, paid: float) -> None:
    response = f"<think>{working}</think><answer>{answer}</answer>"
    (told,) = score(steps, [Sample(response, "15", question="12+7-4=?", tags=Tags.default())])
    assert told.value == pytest.approx(paid)


def test_nothing_of_these_tests_is_left_in_the_checkout() -> None:
    assert not (EXAMPLES / "rewards_in_trl" / "runs").exists() and os.getcwd() == str(ROOT)
