"""`rlvr study`: trains, goes on after a stop without doing anything twice, tells of runs that fail; mistakes."""

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

PLAN = """
seeds: [0, 1]
settings:
  pretrain: MODEL
  reward_functions: [gsm8k_reward_fn]
  num_episodes: 1
  experience_batch_size: 16
  num_collect_steps: 1
  train_batch_size: 16
  accumulation_steps: 1
  eval_samples: 8
  eval_interval: 1
  max_new_tokens: 8
  max_length: 96
  max_samples: 32
  num_update_steps: 1
  num_threads: 1
grid:
  estimator: [gae, reinforce_pp]
targets: [0.0]
"""


@pytest.fixture
def plan(tmp_path: Path, micro_model: str) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN.replace("MODEL", micro_model))
    return path


@pytest.mark.processes
def test_a_study_goes_on_where_it_was_stopped(plan: Path, tmp_path: Path, capsys) -> None:
    words = ["study", str(plan), "--out", str(tmp_path / "runs"), "--results", str(tmp_path / "kept.json")]
    assert main([*words, "--only", "gae", "--seeds", "0"]) == 0
    assert "1 to do" in capsys.readouterr().out
    before = (tmp_path / "runs" / "gae" / "seed-0" / "metrics.jsonl").read_text()
    assert main([*words, "--jobs", "2", "--plot", str(tmp_path / "drawn.png")]) == 0
    out = capsys.readouterr().out
    assert "1 of 4 runs are finished, 3 to do" in out and "| `reinforce_pp` |" in out and "left 0:00:00" in out
    assert (tmp_path / "runs" / "gae" / "seed-0" / "metrics.jsonl").read_text() == before
    assert len(json.loads((tmp_path / "kept.json").read_text())["runs"]) == 4
    assert (tmp_path / "drawn.png").stat().st_size > 10_000
    plan.write_text(plan.read_text().replace("num_episodes: 1", "num_episodes: 2"))
    assert main(words) == 2 and "was made with num_episodes 1" in capsys.readouterr().err
    assert main([*words, "--report_only"]) == 0


@pytest.mark.processes
def test_a_run_that_fails_is_told_of_after_the_others(plan: Path, tmp_path: Path, micro_model: str, capsys) -> None:
    models = f"  model:\n    there: {{pretrain: {micro_model}}}\n    nowhere: {{pretrain: ./no-such-model}}\n"
    plan.write_text(plan.read_text().replace("grid:\n", f"grid:\n{models}").replace(f"  pretrain: {micro_model}\n", ""))
    assert main(["study", str(plan), "--out", str(tmp_path / "runs"), "--only", "gae", "--seeds", "0"]) == 2
    said = capsys.readouterr()
    assert "there, gae seed 0: done" in said.out and "failed: nowhere, gae seed 0" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--jobs", "0"], "--jobs 0"),
        (["--plot", "figure.txt"], "must end in .png, .svg, .pdf"),
        (["--report_only"], "no finished run"),
        (["--only", "gea"], "Did you mean 'gae'"),
    ],
)
def test_mistakes(plan: Path, tmp_path: Path, words: list[str], said: str, capsys) -> None:
    assert main(["study", str(plan), "--out", str(tmp_path / "none"), *words]) == 2
    assert said in capsys.readouterr().err
