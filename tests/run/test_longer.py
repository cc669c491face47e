"""`--resume` with more episodes makes a run longer; with fewer it is refused, and the way on is named."""

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

pytestmark = pytest.mark.usefixtures("process", "tiny_cache")
SHORT = [
    "train", "--reward_functions", "gsm8k_reward_fn", "--experience_batch_size", "8", "--train_batch_size", "8", "--eval_samples", "2",
    "--lr_schedule", "linear", "--warmup_steps", "0",
]  # fmt: skip


NAME = "a[/]b"  # rich would take it for markup


def run(folder: Path, episodes: int, *flags: str) -> int:
    return main([*SHORT, "--save_path", str(folder), "--num_episodes", str(episodes), *flags])


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_finished_run_is_made_longer(tmp_path: Path, capsys) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def brief(response):\n    return -len(response) / 1000\n")
    functions = ("--reward_functions", "gsm8k_reward_fn", f"{mine}:brief")
    assert run(tmp_path / NAME, 1, *functions) == 0
    mine.write_text(mine.read_text() + "# mended\n")
    capsys.readouterr()
    assert [row["step"] for row in rows(tmp_path / NAME)] == [0, 1]
    assert run(tmp_path / NAME, 3, "--resume", *functions) == 0
    said = "".join(capsys.readouterr().out.split())  # a long path is broken anywhere
    assert said.count("haschangedsince") == 1 and f"thecodeof{mine}:briefhaschangedsince" in said
    found = rows(tmp_path / NAME)
    assert [row["step"] for row in found] == [0, 1, 2, 3]
    # One third and two thirds of the longer run's way from the peak down to a tenth of it.
    assert [row["lr"] for row in found[-2:]] == pytest.approx([3e-4 * (1 - 0.9 / 3), 3e-4 * (1 - 0.9 * 2 / 3)])
    assert run(tmp_path / NAME, 2, "--resume", *functions) == 2
    out, told = capsys.readouterr()
    assert "has changed" not in out
    assert "settings.train.num_episodes: saved 3, given 2" in told and "may become longer, not shorter" in told
    assert f"--checkpoint_path {tmp_path}/{NAME}/actor/modeling" in told
    assert told.count("\n") == 1
