"""`rlvr tasks`: figures of known responses, verdicts, going on after a stop, and mistakes."""

import json
from pathlib import Path

import pytest
import torch

from rlvr.cli.main import main
from rlvr.evaluation.tasks import judge
from rlvr.rollout.hf import HFEngine

pytestmark = pytest.mark.usefixtures("process", "tiny_cache")
SMALL = ["--max_new_tokens", "24", "--max_length", "160", "--mixed_precision", "fp32", "--num_generations", "8"]


def tasks(capsys, *words) -> dict:
    assert main(["tasks", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def certain(share: float) -> tuple[float, float, float]:
    return share, share, share


@pytest.mark.parametrize(
    ("pass_1", "pass_64", "signal", "in_format", "cut", "anyway", "verdict", "said"),
    [
        (0.95, 1.0, 0.3, 1.0, 0.0, 0.95, "solved", "take harder problems"),
        (0.2, 0.9, 0.7, 1.0, 0.0, 0.2, "start", "RL can start: 70 %"),
        (0.05, 0.5, 0.2, 1.0, 0.5, 0.05, "slow", "raise --max_new_tokens"),
        (0.8, 0.85, 0.05, 1.0, 0.0, 0.8, "solved", "nearly solved"),
        (0.0, 0.02, 0.02, 0.05, 0.0, 0.4, "sft", "on the format: 40 % are right, but only 5 %"),
        (0.0, 0.02, 0.02, 0.9, 0.0, 0.0, "sft", "pass@64 is 2 %"),
    ],
)
def test_what_follows_from_the_figures(pass_1, pass_64, signal, in_format, cut, anyway, verdict, said) -> None:
    found, why = judge({1: certain(pass_1), 64: certain(pass_64)}, certain(signal), in_format, cut, anyway)
    assert found == verdict and said in why and "%" not in why.replace(" %", "")


def test_figures_of_responses_that_are_known(tmp_path: Path, capsys, monkeypatch) -> None:
    """Of 8 responses to each of three problems 0, 2 and 8 are right; of the wrong ones, half have no tags but the right number."""
    from rlvr.models.loading import load_tokenizer
    from rlvr.rollout.engine import Rollout

    tokenizer, right_ones = load_tokenizer("tiny"), iter([0, 2, 8])

    def stream(self, model, prompts, sampling, seed):
        assert sampling.temperature == 1 and len({prompt.ids for prompt in prompts}) == 1
        right = next(right_ones)
        for number, prompt in enumerate(prompts):
            text = f"<think>a</think><answer>{4 if number < right else 5}</answer>" if number < 5 or right == 8 else "4"
            ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
            yield [Rollout(torch.tensor(prompt.ids), torch.tensor(ids), "stop")]

    monkeypatch.setattr(HFEngine, "stream", stream)
    data = tmp_path / "d.jsonl"
    data.write_text("\n".join(json.dumps({"question": f"2+2={'?' * i}", "answer": "4"}) for i in (1, 2, 3)))
    words = [
        "tiny",
        data,
        *SMALL,
        "--generation_batch_size",
        "8",
        "--group_size",
        "2",
        "--reward_functions",
        "gsm8k_reward_fn",
    ]
    (task,) = tasks(capsys, *words, "--save_path", tmp_path / "out")["tasks"]
    assert task["problems"] == 3 and task["samples"] == 8
    assert task["pass_at"]["1"][0] == pytest.approx((0 + 2 / 8 + 1) / 3)
    assert task["pass_at"]["8"][0] == pytest.approx(2 / 3) and set(task["pass_at"]) == {"1", "8"}
    assert task["signal"][0] == pytest.approx(2 * 6 * 2 / (8 * 7) / 3)  # pairs of the second problem alone
    assert task["in_format"] == pytest.approx(18 / 24) and task["right_anyway"] == pytest.approx(16 / 24)
    assert task["verdict"] == "slow" and task["sampling_s"] > 0 and task["update_s"] > 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "d" / "responses.jsonl").read_text().splitlines()]
    assert task["rewards"]["gsm8k_reward_fn"] == pytest.approx(sum(r["scores"]["gsm8k_reward_fn"] for r in lines) / 24)
    assert json.loads((tmp_path / "out" / "tasks.json").read_text())["tasks"] == [task]


def test_sets_side_by_side_and_nothing_is_asked_twice(tmp_path: Path, capsys, monkeypatch) -> None:
    words = ["tiny", "builtin", "arithmetic@1", *SMALL, "--max_samples", "4", "--save_path", str(tmp_path / "out")]
    first = tasks(capsys, *words)
    assert [task["dataset"] for task in first["tasks"]] == ["builtin", "arithmetic@1"]
    monkeypatch.setattr(HFEngine, "stream", None)
    again = tasks(capsys, *words, "--resume")
    for before, now in zip(first["tasks"], again["tasks"], strict=True):
        assert before | {"update_s": 0} == now | {"update_s": 0}  # the rate of sampling comes from the folder
    assert main(["tasks", *words, "--resume"]) == 0
    text = capsys.readouterr().out
    assert "groups of 8 with signal" in text and "arithmetic@1: " in text and max(map(len, text.splitlines())) <= 160
    assert main(["tasks", *words]) == 2 and "give --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tiny"], "DATASET"),
        (["tiny", "builtin", "--temperature", "0", "--num_generations", "1"], "groups of equal responses"),
        (["tiny", "builtin", "--group_size", "9", "--num_generations", "8"], "--group_size 9"),
        (["tiny", "builtin", "--group_size", "1"], "--group_size 1"),
        (["tiny", "builtin", "--experience_batch_size", "0"], "--experience_batch_size 0"),
        (["tiny", "builtni"], "Did you mean 'builtin'"),
        (["tiny", "builtin", "builtin"], "named twice"),
    ],
)
def test_mistakes(words: list[str], said: str, capsys) -> None:
    assert main(["tasks", *words]) == 2
    assert said in capsys.readouterr().err
