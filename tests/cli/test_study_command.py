"""`rlvr study`: trains, goes on after a stop without doing anything twice, tells of runs that fail; mistakes."""

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

pytestmark = pytest.mark.usefixtures("tiny_cache")
PLAN = """
seeds: [0, 1]
settings:
  pretrain: tiny
  reward_functions: [gsm8k_reward_fn]
  num_episodes: 1
  experience_batch_size: 16
  num_collect_steps: 1
  train_batch_size: 16
  accumulation_steps: 1
  eval_samples: 8
  eval_interval: 1
grid:
  estimator: [gae, reinforce_pp]
targets: [0.0]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
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
    plan.write_text(PLAN.replace("num_episodes: 1", "num_episodes: 2"))
    assert main(words) == 2 and "was made with num_episodes 1" in capsys.readouterr().err
    assert main([*words, "--report_only"]) == 0


@pytest.mark.processes
def test_a_run_that_fails_is_told_of_after_the_others(plan: Path, tmp_path: Path, capsys) -> None:
    plan.write_text(
        PLAN.replace("  estimator: [gae", "  pretrain: [tiny, ./no-such-model]\n  estimator: [gae").replace(
            "  pretrain: tiny\n", ""
        )
    )
    assert main(["study", str(plan), "--out", str(tmp_path / "runs"), "--only", "gae", "--seeds", "0"]) == 2
    said = capsys.readouterr()
    assert "tiny, gae seed 0: done" in said.out and "failed: ./no-such-model, gae seed 0" in said.err


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
