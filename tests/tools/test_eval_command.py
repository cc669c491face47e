"""`rlvr eval`: the figures against a count by hand, the interval against its definition, and mistakes."""

import json
from pathlib import Path

import pytest
import torch

from rlvr.cli import main
from rlvr.rollout.hf import HFEngine
from rlvr.tools.evaluate import Z_95, wilson_interval

pytestmark = pytest.mark.usefixtures("tiny_cache")
SMALL = ["--max_new_tokens", "24", "--max_length", "160", "--mixed_precision", "fp32"]


def evaluate(capsys, *words) -> dict:
    assert main(["eval", *map(str, words), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def write(path: Path, *rows: dict) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_counts_of_responses_that_are_known(tmp_path: Path, capsys, monkeypatch) -> None:
    """Three right, one wrong, one cut off, one out of format."""
    from rlvr.models.loading import load_tokenizer
    from rlvr.rollout.engine import Rollout

    texts = ["<think>a</think><answer>4</answer>"] * 3 + ["<think>a</think><answer>5</answer>", "<think>a", "4"]
    tokenizer = load_tokenizer("tiny")

    def stream(self, model, prompts, sampling, seed):
        assert sampling.temperature == 0
        for prompt, text in zip(prompts, texts, strict=True):
            ids = tokenizer.encode(text, add_special_tokens=False)
            cut = text == "<think>a"
            ids = ids if cut else [*ids, tokenizer.eos_token_id]
            yield [Rollout(torch.tensor(prompt.ids), torch.tensor(ids), "length" if cut else "stop")]

    monkeypatch.setattr(HFEngine, "stream", stream)
    data = write(tmp_path / "d.jsonl", *({"question": f"2+2={'?' * i}", "answer": "4"} for i in range(1, 7)))
    out = tmp_path / "out.jsonl"
    result = evaluate(
        capsys, "tiny", "--dataset", data, "--reward-functions", "gsm8k_reward_fn", *SMALL, "--output", out
    )
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    right = sum(line["status"] == "correct" for line in lines)
    assert result["problems"] == 6 and result["accuracy"] == right / 6 and right >= 3
    assert result["format"] == 4 / 6 and result["truncated"] == 1 / 6
    assert result["length_tokens"] == pytest.approx(sum(line["tokens"] for line in lines) / 6)
    assert sum(result["statuses"].values()) == 6 and result["statuses"]["correct"] == right
    scores = [line["scores"]["gsm8k_reward_fn"] for line in lines]
    assert result["rewards"] == {"gsm8k_reward_fn": pytest.approx(sum(scores) / 6)} and scores[:3] == [1.0] * 3
    assert [line["finished"] for line in lines] == [True] * 4 + [False, True]


def test_the_built_in_problems_and_the_same_seed_twice(capsys) -> None:
    words = ["tiny", "--max-samples", "8", "--temperature", "1", "--seed", "3", *SMALL]
    first = evaluate(capsys, *words)
    assert first == evaluate(capsys, *words) and first["problems"] == 8
    low, high = first["accuracy_95"]
    assert 0 <= low <= first["accuracy"] <= high <= 1
    assert main(["eval", *words]) == 0
    text = capsys.readouterr().out
    assert "95 % interval" in text and "truncated" in text and max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("right", "count"), [(0, 10), (10, 10), (3, 7), (500, 1000), (1, 1)])
def test_wilson_bounds_are_the_shares_that_are_just_as_far_off_as_z(right: int, count: int) -> None:
    """The interval holds the shares p with |seen - p| <= z sqrt(p (1 - p) / n)."""
    for bound in wilson_interval(right, count):
        if 1e-9 < bound < 1 - 1e-9:
            assert abs(right / count - bound) == pytest.approx(Z_95 * (bound * (1 - bound) / count) ** 0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "MODEL"),
        (["./no-such-model"], "no-such-model"),
        (["tiny", "--dataset", "nowhere.jsonl"], "nowhere.jsonl"),
        (["tiny", "--top_k", "5"], "greedy"),
        (["tiny", "--temperature", "-1"], "--temperature"),
        (["tiny", "--temperature", "1", "--top_p", "0"], "--top_p"),
        (["tiny", "--max_samples", "0"], "--max_samples"),
        (["tiny", "--max_new_tokens", "4096"], "--max_length"),
        (["tiny", "--engine", "replay"], "invalid choice"),
        (["tiny", "--reward_functions", "gsm8k_rewad_fn"], "Did you mean"),
        (["tiny", "--reward_options", "{}"], "--reward_functions"),
        (["tiny", "--output", "no/such/folder/out", "--max_samples", "1", *SMALL], "--output no/such/folder/out"),
    ],
)
def test_mistakes(words, said, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["eval", *words]) == 2
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told and told.count("error:") == 1
