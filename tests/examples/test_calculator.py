"""`examples/calculator/`: its texts and problems are what its page says, and all of its steps run."""

import importlib.util
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rewards import Tags
from rewards.calculator import calculate
from rlvr.cli.main import main
from rlvr.data.drawing import split_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "calculator"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"calculator_{name}", EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The example's folder with a few hundred rows in `runs`."""
    folder = tmp_path_factory.mktemp("calculator")
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs"))
    (folder / "runs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        train = load("train")
        patch.setattr(train, "TEXTS", {name: (400, *shares) for name, (_, *shares) in train.TEXTS.items()})
        patch.setattr(train, "PROBLEMS", {n: (split, 60, hard) for n, (split, _, hard) in train.PROBLEMS.items()})
        train.write(folder / "runs")
    yield folder


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs" / f"{name}.jsonl").read_text().splitlines()]


def test_texts_are_true_and_call_as_often_as_they_say(folder: Path) -> None:
    shares = {}
    for name in ("lessons", "habits"):
        calls: dict[bool, list[bool]] = {True: [], False: []}
        for row in rows(folder, name):
            turns = [message["content"] for message in row["messages"]]
            assert [message["role"] for message in row["messages"]] == ["user", "assistant"] * (len(turns) // 2)
            asked = Tags.default().calls_of(turns[1])
            assert len(turns) == (4 if asked else 2)
            if asked:
                assert (
                    turns[2] == calculate(asked[0])
                    and turns[3] == f"<think>{asked[0]}={turns[2]}</think><answer>{turns[2]}</answer>"
                )
            steps = turns[-1].removeprefix("<think>").split("</think>")[0].split(";")
            for left, right in (step.split("=") for step in steps):
                assert calculate(left) == right
            calls["*" in steps[0]].append(bool(asked))
        shares[name] = [sum(calls[hard]) / len(calls[hard]) for hard in (False, True)]
    assert shares["lessons"] == [pytest.approx(0.25, abs=0.08), pytest.approx(0.95, abs=0.05)]
    assert shares["habits"] == [pytest.approx(0.05, abs=0.05)] * 2


def test_held_out_problems_are_never_trained_on(folder: Path) -> None:
    seen = {row["messages"][0]["content"] for name in ("lessons", "habits") for row in rows(folder, name)}
    seen |= {row["question"] for row in rows(folder, "train")}
    held_out = {name: [row["question"] for row in rows(folder, name)] for name in ("easy", "hard")}
    assert not seen & {question for questions in held_out.values() for question in questions}
    bare = [question.removesuffix("=?") for question in held_out["hard"] if question.endswith("=?")]
    assert bare and {split_of(formula) for formula in bare} == {"test"}


def test_every_step_runs_and_the_curves_are_drawn(process, tiny_cache, folder: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder)
    few = ["--num_threads", "1", "--no_progress"]
    for name in ("lessons", "habits"):
        steps = ["--max_steps", "1", "--max_samples", "24", "--train_batch_size", "4"]
        assert main(["sft", "--config", f"{name}.yaml", "--save_path", f"runs/{name}", *steps, *few]) == 0
    small = "--num_episodes 1 --experience_batch_size 8 --train_batch_size 8 --eval_samples 4 --max_new_tokens 24 --reward_workers 1".split()
    assert main(["train", "--config", "calls.yaml", "--save_path", "runs/calls", *small, *few]) == 0
    load("curves").draw(folder / "curves.png", [folder / "runs" / "calls"])
    assert (folder / "curves.png").stat().st_size > 10_000
