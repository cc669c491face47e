"""The environment of docs/environments.md does what the page says, by hand and in a run."""

import json
import re
import sys
from pathlib import Path

import pytest

from rlvr.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
CLASS, BY_HAND = re.findall(r"^```python[^\n]*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "second_try.py").write_text(CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("second_try", None)


def test_it_is_as_short_as_the_page_says() -> None:
    assert 8 <= sum(bool(line.strip()) for line in CLASS.splitlines()) <= 10


def test_by_hand(folder) -> None:
    assert BY_HAND.count("assert ") == 2
    exec(compile(BY_HAND, "environments.md", "exec"), {"__name__": "page"})


def test_in_a_run(folder, process, tiny_cache) -> None:
    """The built-in model is wrong at first more often than not, so that several turns are taken."""
    flags = "--environment second_try.py:SecondTry --max_turns 3 --max_new_tokens 112 --num_episodes 1 --experience_batch_size 16"
    more = "--train_batch_size 16 --eval_samples 4 --no_progress --save_path run --num_threads 1"
    assert main(["train", *flags.split(), *more.split()]) == 0
    row = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()][-1]
    assert 1 < row["environment/turns"] <= 3 and row["environment/ended_failed"] == 0
    assert row["reward/environment/tries"] == pytest.approx(-0.2 * row["environment/turns"])
    assert row["reward/environment"] == pytest.approx(row["reward/environment/right"] + row["reward/environment/tries"])
    sample = json.loads(Path("run/samples.jsonl").read_text().splitlines()[0])
    assert "think" in sample["response"]
