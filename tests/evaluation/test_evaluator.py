"""Evaluation in the training loop: its metrics are those of `rlvr eval`, for each data set, whoever answers which part."""

import json
import os
import signal
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import rlvr.evaluation.evaluator as module
from rewards.outcome import Status
from rlvr.api import train
from rlvr.cli.main import main
from rlvr.config import base_config
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.evaluation.evaluator import Evaluator
from rlvr.evaluation.prompts import EvalDataSettings, EvalPrompt, read_eval_prompts, short_dataset_names
from rlvr.evaluation.summary import as_metrics, summarise
from rlvr.models.loading import load_causal_lm, load_tokenizer
from rlvr.prompting.conversation import Conversation, choose_template
from rlvr.rollout.engine import Sampling
from rlvr.rollout.registry import make_engine
from rlvr.trainer.base import Interrupted

pytestmark = pytest.mark.usefixtures("process")


def write(path: Path, count: int, start: int = 10) -> str:
    rows = ({"question": f"{n}+{n}=?", "answer": str(2 * n)} for n in range(start, start + count))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def rows_of(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def evaluator(micro_model) -> tuple[Evaluator, Any]:
    """Of nine problems of two data sets, three responses each, two problems to a part; and a model."""
    tokenizer = load_tokenizer(micro_model)
    conversation = Conversation(choose_template("auto", tokenizer), tokenizer)
    problems = [Problem(str(n), f"{n}+1=?", str(n + 1)) for n in range(9)]
    asked = [
        EvalPrompt("ab"[n > 4], Prompt(p, tuple(conversation.encode_prompt(p.question))))
        for n, p in enumerate(problems)
    ]
    sampling = Sampling(max_new_tokens=6, temperature=1.0, stop_ids=conversation.stop_ids, batch_size=6)
    made = Evaluator(asked, make_engine("hf", tokenizer), sampling, tokenizer, conversation, samples=3)
    return made, load_causal_lm(micro_model).eval()


class Ranks:
    """Plays `world_size` processes that take their turns one after the other."""

    def __init__(self, world_size: int) -> None:
        self.world_size, self.rank = world_size, 0

    def is_initialized(self) -> bool:
        return True

    def get_rank(self) -> int:
        return self.rank

    def get_world_size(self) -> int:
        return self.world_size


def lines_of(evaluator: Evaluator, model: Any, world_size: int, monkeypatch, done: int = 0) -> list[Any]:
    """All lines, as `world_size` processes would gather them."""
    ranks = Ranks(world_size)
    monkeypatch.setattr(module, "dist", ranks)
    monkeypatch.setattr(module, "gather_json", lambda value: [value])
    own = []
    for ranks.rank in range(world_size):
        own.append([lines for _, lines in evaluator.rounds(model, done)])
    assert len({len(rounds) for rounds in own}) == 1, "all join every round"
    return [line for rounds in zip(*own, strict=True) for lines in rounds for line in lines]


def test_any_number_of_processes_gives_the_same_lines(evaluator, monkeypatch) -> None:
    made, model = evaluator
    alone = lines_of(made, model, 1, monkeypatch)
    assert [(line["problem"], line["sample"]) for line in alone] == [(str(n), k) for n in range(9) for k in range(3)]
    for world_size in (2, 3, 7):
        assert lines_of(made, model, world_size, monkeypatch) == alone
    assert lines_of(made, model, 2, monkeypatch, done=4) == alone[12:]


def test_metrics_are_the_summary_under_names_that_trackers_take(evaluator) -> None:
    made, model = evaluator
    metrics = made(model)
    lines = [line for _, lines in made.rounds(model) for line in lines]
    assert metrics == as_metrics(lines)
    for prefix, some in (("eval", lines), ("eval/a", lines[:15]), ("eval/b", lines[15:])):
        found = summarise(some)
        low, high = found["accuracy_95"]
        for name, value in (
            ("problems", found["problems"]),
            ("accuracy", found["accuracy"]),
            ("accuracy_low", low),
            ("accuracy_high", high),
            ("pass_at_2", found["pass@2"]),
            ("pass_at_3", found["pass@3"]),
            ("maj_at_3", found["maj@3"]),
            ("truncated", found["truncated"]),
            ("length_tokens", found["length_tokens"]),
            ("num_no_answer", found["statuses"].get("no_answer", 0)),
        ):
            assert metrics[f"{prefix}/{name}"] == value, name
        counts = [metrics[f"{prefix}/num_{status}"] for status in get_args(Status)]
        assert sum(counts) == len(some)
    one = as_metrics([line for line in lines if line["dataset"] == "a" and line["sample"] == 0])
    assert one.keys() == {n for n in metrics if n.count("/") == 1 and "_at_" not in n}, "one data set: plain names"
    assert all(c.isalnum() or c in "/_.-" for name in metrics for c in name)


def test_progress_counts_all_parts(evaluator) -> None:
    made, model = evaluator
    told: list[tuple[int, int, int]] = []
    made.engine.on_progress = lambda *said: told.append(said)
    try:
        lines = [line for _, lines in made.rounds(model) for line in lines]
    finally:
        assert made.engine.on_progress is not None
        made.engine.on_progress = None
    assert told[-1] == (27, 27, sum(line["tokens"] for line in lines))
    assert told == sorted(told) and {total for _, total, _ in told} == {27}


def test_names_tell_data_sets_apart() -> None:
    assert short_dataset_names(["openai/gsm8k", "HuggingFaceH4/MATH-500", "x/y.jsonl"]) == ["gsm8k", "MATH-500", "y"]
    assert short_dataset_names(["m@main:train", "m@main:test"]) == ["m_main_train", "m_main_test"]
    assert short_dataset_names(["a.jsonl", "a.csv"]) == ["a.jsonl", "a.csv"]
    assert short_dataset_names(["../../é.json", "builtin:test"]) == ["data", "builtin_test"]
    assert short_dataset_names(["é.json", "è.json"]) == ["data_0", "data_1"]
    assert short_dataset_names([]) == []


RUN = {
    "rollout": {"experience_batch_size": 8, "max_new_tokens": 6, "max_length": 96, "generation_batch_size": 8},
    "train": {
        "num_episodes": 2,
        "num_collect_steps": 1,
        "num_update_steps": 1,
        "train_batch_size": 8,
        "num_threads": 1,
    },
    "parallel": {"mixed_precision": "fp32"},
    "reward": {"reward_functions": ["gsm8k_reward_fn"]},
    "log": {"progress": False},
}


def test_a_run_evaluates_each_data_set_as_rlvr_eval_does(micro_model, tmp_path, capsys) -> None:
    one, two = write(tmp_path / "one.jsonl", 5), write(tmp_path / "two.jsonl", 3, 50)
    config = base_config(
        RUN
        | {
            "model": {"pretrain": micro_model},
            "data": {"prompt_dataset": [one], "eval_datasets": [one, two]},
            "eval": {"eval_interval": 1, "eval_generations": 4, "eval_temperature": 1.0},
            "ckpt": {"save_path": str(tmp_path / "run")},
        }
    )
    train(config)
    told = capsys.readouterr().out
    rows = rows_of(tmp_path / "run")
    assert [row["step"] for row in rows if "eval/accuracy" in row] == [0, 1, 2]
    names = {name for name in rows[0] if name.startswith("eval/")}
    assert all(names <= set(row) for row in rows)
    assert {"eval/one/pass_at_4", "eval/two/maj_at_2", "eval/one/accuracy_low", "eval/two/num_wrong"} <= names
    assert (rows[0]["eval/problems"], rows[0]["eval/one/problems"], rows[0]["eval/two/problems"]) == (8, 5, 3)
    assert told.count("held-out accuracy") == 3 and "pass@4" in told and "    two " in told
    # The trained model, asked by the command with the same settings
    sampled = "--num_generations 4 --temperature 1 --max_new_tokens 6 --max_length 96 --generation_batch_size 8".split()
    words = ["eval", str(tmp_path / "run/actor/modeling"), "--dataset", one, two, *sampled, "--mixed_precision", "fp32"]
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    for name, part in ((None, result), ("one", result["datasets"][one]), ("two", result["datasets"][two])):
        prefix = f"eval/{name}" if name else "eval"
        for metric in ("accuracy", "pass@2", "maj@4", "format", "truncated", "length_tokens"):
            assert rows[-1][f"{prefix}/{metric.replace('@', '_at_')}"] == part[metric], (prefix, metric)


def test_a_run_asked_to_stop_in_an_evaluation_goes_on_in_it(micro_model, tmp_path, monkeypatch) -> None:
    """Between two parts of the evaluation after the first episode."""

    def config(folder: str, resume: bool = False):
        given = {
            "model": {"pretrain": micro_model},
            "eval": {"eval_interval": 1, "eval_samples": 24},
            "ckpt": {"save_path": str(tmp_path / folder), "resume": resume},
        }
        return base_config(RUN | given)

    def rows(folder: str) -> list[dict[str, float]]:
        return [
            {name: value for name, value in row.items() if not name.startswith(("time/", "memory/"))}
            for row in rows_of(tmp_path / folder)
        ]

    train(config("whole"))
    answer, parts = Evaluator._answers, []

    def answers(self, model, start, *others):
        parts.append(start)
        if len(parts) == 4:  # three before the first episode
            os.kill(os.getpid(), signal.SIGTERM)
        return answer(self, model, start, *others)

    monkeypatch.setattr(Evaluator, "_answers", answers)
    with pytest.raises(Interrupted):
        train(config("stopped"))
    assert parts == [0, 8, 16, 0] and [row["step"] for row in rows("stopped")] == [0]
    train(config("stopped", resume=True))
    assert parts[4:] == [0, 8, 16] * 2 and rows("stopped") == rows("whole")


def test_data_without_right_answers_is_no_evaluation(micro_model, tmp_path) -> None:
    path = tmp_path / "ungraded.jsonl"
    path.write_text('{"question": "1+1=?"}\n')
    tokenizer = load_tokenizer(micro_model)
    conversation = Conversation(choose_template("auto", tokenizer), tokenizer)
    for column, said in ((None, "no answer column"), ("none", r"--eval_datasets .*l: no problem has a right answer")):
        how = EvalDataSettings("--eval_datasets", 64, answer_column=column)
        with pytest.raises(UserError, match=said):
            read_eval_prompts(str(path), "ungraded", how, conversation, [])
    notes: list[str] = []
    path.write_text('{"question": "1+1=?", "answer": "2"}\n{"question": "' + "9+" * 200 + '9=?", "answer": "3609"}\n')
    (asked,) = read_eval_prompts(str(path), "mixed", EvalDataSettings("--eval_datasets", 64), conversation, notes)
    assert asked.prompt.problem.answer == "2" and notes == ["mixed: 1 of 2 prompts left out: longer than 64 tokens"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--eval_generations", "0"], "must be at least 1"),
        (["--eval_generations", "4", "--eval_temperature", "0"], "gives one response several times"),
        (["--eval_datasets", "builtin", "builtin"], "named twice"),
        (["--eval_dataset", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_mistakes(flags, said, tmp_path, capsys) -> None:
    assert main(["train", "--reward_functions", "gsm8k_reward_fn", *flags, "--save_path", str(tmp_path / "run")]) == 2
    text = capsys.readouterr().err
    assert said in text and text.count("error:") == 1 and "Traceback" not in text
    assert torch.is_grad_enabled()
