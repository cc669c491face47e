"""`rlvr train --dry_run`: settings with their origins, batch arithmetic, memory; nothing is written, trained or loaded."""

import re
from pathlib import Path

import pytest

from rlvr.cli.main import main

REWARD = ["--reward-functions", "gsm8k_reward_fn"]


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder with empty caches, and models that can't be loaded."""
    from rlvr.models import tiny as warmstart
    from rlvr.run import parts as build

    def refuse(*args, **kwargs):
        raise AssertionError("a dry run loads nothing")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLVR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(warmstart, "ensure_tiny", refuse)
    monkeypatch.setattr(build, "make_models", refuse)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    return tmp_path


def dry(capsys, *flags: str) -> str:
    assert main(["train", *REWARD, *flags, "--dry-run"]) == 0
    return capsys.readouterr().out


def test_it_writes_nothing_and_says_everything(nowhere: Path, capsys) -> None:
    (nowhere / "run.yaml").write_text("train:\n  critic_lr: 0.25\nalgo:\n  gamma: 1.0\n")
    out = dry(capsys, "--config", "run.yaml", "--lr", "0.125", "--save_path", "run")
    assert [p.name for p in nowhere.iterdir()] == ["run.yaml"]
    settings = {m[2]: (m[1], m[3].split()) for m in re.finditer(r"^ ([* ]) (\w+) +(.*)$", out, re.M)}
    assert settings["lr"] == ("*", ["0.125", "flag"])
    assert settings["critic_lr"] == ("*", ["0.25", "file"])
    assert settings["gamma"] == (" ", ["1", "file"])
    assert settings["num_episodes"] == ("*", ["40", "model", "tiny"])
    assert settings["tp"] == (" ", ["1"])
    assert "nothing was trained" in out
    assert max(map(len, out.split("batches")[0].splitlines())) <= 100


def test_the_arithmetic_of_batches(nowhere: Path, capsys, monkeypatch) -> None:
    sizes = ["--experience_batch_size", "64", "--num_generations", "4", "--num_collect_steps", "2"]
    steps = ["--num_update_steps", "3", "--train_batch_size", "8", "--accumulation_steps", "2", "--num_episodes", "5"]
    out = dry(capsys, *sizes, *steps)
    for said in (
        "16 prompts x 4 = 64 responses",
        "2 collect step(s) = 128 responses",
        "3 pass(es) x 8 = 24 optimizer steps",
        "16 responses, 16 in each process: at least 2 micro-batch(es) of up to 8",
        "5 episodes, 640 responses, 120 optimizer steps (120 of the actor)",
    ):
        assert said in out, out
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "8 in each process: at least 2 micro-batch(es) of up to 4" in dry(capsys, *sizes, *steps)
    monkeypatch.setenv("RANK", "1")
    assert dry(capsys, *sizes, *steps) == ""


def test_mistakes_are_found_as_in_training(nowhere: Path, capsys) -> None:
    for flags, said in (
        (["--train_batch_size", "7"], "multiple"),
        (["--lam", "2"], "between 0 and 1"),
        (["--kl_horizon", "5"], "without --kl_target"),
        (["--plugin", "gemini_auto"], "gemini_auto"),
        (["--pretrain", str(nowhere / "none")], "none"),
    ):
        assert main(["train", *REWARD, *flags, "--dry_run"]) == 2
        told = capsys.readouterr().err
        assert said in told and told.count("\n") == 1
    assert list(nowhere.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "flags", "said"),
    [
        ("sft", ["--max_samples", "100"], ["32 rows, 32 in each process", "at most 4 optimizer steps", "actor  "]),
        ("sft", ["--max_steps", "10", "--micro_batch_tokens", "480"], ["at least 11 pass(es) of up to 3", "320 rows"]),
        ("reward-model", ["--max_steps", "10"], ["32 pairs", "10 optimizer steps, 320 pairs", "203,648"]),
    ],
)
def test_supervised_runs_too(command, flags, said, nowhere: Path, capsys, monkeypatch) -> None:
    assert main([command, *flags, "--lr", "0.125", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in said), out
    settings = {m[2]: (m[1], m[3].split()) for m in re.finditer(r"^ ([* ]) (\w+) +(.*)$", out, re.M)}
    assert settings["lr"] == ("*", ["0.125", "flag"]) and settings["weight_decay"][1][1:] == ["model", "tiny"]
    assert list(nowhere.iterdir()) == [] and max(map(len, out.split("memory of")[0].splitlines())) <= 100
    peaks = []
    for more in ([], ["--train_batch_size", "8"], ["--grad_checkpoint"]):
        main([command, *flags, *more, "--dry_run"])
        peaks.append(re.search(r"about (\d+) MiB", capsys.readouterr().out)[1])
    assert int(peaks[0]) >= int(peaks[1]) and int(peaks[0]) > int(peaks[2])
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert main([command, *flags, "--dry_run"]) == 2
    assert "multiple of 3" in capsys.readouterr().err


def test_a_model_of_any_size_needs_no_weights(nowhere: Path, capsys) -> None:
    """Llama 3 8B's shape, from its configuration alone."""
    from transformers import LlamaConfig

    LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=128256,
    ).save_pretrained(nowhere / "big")
    out = dry(capsys, "--pretrain", "big", "--grad_checkpoint", "--max_length", "512")
    assert "8,030,261,248" in out  # its published number of weights
    row = next(line for line in out.splitlines() if line.strip().startswith("actor"))
    assert row.split()[2:] == ["29.9", "GiB", "29.9", "GiB", "59.8", "GiB"]
    assert [p.name for p in nowhere.iterdir()] == ["big"]
