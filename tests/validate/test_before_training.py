"""Template and right answers are checked before every training."""

import json
from pathlib import Path

import pytest
from family_tokenizers import family

from rlvr.cli.main import main
from rlvr.config import from_dict
from rlvr.data.problems import Problem, with_good_golds
from rlvr.errors import UserError
from rlvr.prompting.conversation import Conversation, ConversationTemplate
from rlvr.prompting.lint import require_template
from rlvr.prompting.template import template_dir
from rlvr.run import parts as build
from rlvr.validate.ppo import check_config

REWARD = ["--reward_functions", "gsm8k_reward_fn"]


def bind(**changes) -> Conversation:
    settings = json.loads((template_dir() / "qwen2.5.json").read_text()) | changes
    return Conversation(ConversationTemplate.from_config(settings, "mine.json"), family("qwen2.5"))


@pytest.mark.usefixtures("process", "tiny_cache")
def test_a_template_that_would_ruin_training_stops_it(tmp_path: Path, capsys) -> None:
    """Its stop never comes: every response would be cut."""
    settings = json.loads((template_dir() / "tiny.json").read_text())
    path = tmp_path / "t.json"
    path.write_text(json.dumps(settings | {"stop_ids": ["<|unk|>"], "end_of_assistant": "<|unk|>"}))
    words = ["train", *REWARD, "--conversation_template_config", str(path), "--save_path", str(tmp_path / "run")]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert "t.json" in told and "the stop ids end the assistant's turn" in told and "--template_check warn" in told
    assert told.count("\n") == 1
    short = ["--num_episodes", "1", "--experience_batch_size", "8", "--train_batch_size", "8", "--eval_samples", "2"]
    assert main([*words, *short, "--template-check", "warn", "--save_path", str(tmp_path / "on")]) == 0
    assert "the stop ids end the assistant's turn: no" in " ".join(capsys.readouterr().out.split())


def test_what_a_model_can_still_learn_with_is_a_note() -> None:
    assert require_template(bind(), "mine") == []
    (note,) = require_template(bind(system_message="Think."), "mine")
    assert "tells the model of the format: no" in note and "'mine'" in note
    broken = bind(stop_ids=["<|endoftext|>"], end_of_assistant=None)
    with pytest.raises(UserError, match="'mine' does not fit.*the stop ids end"):
        require_template(broken, "mine")
    assert any("the stop ids end" in note for note in require_template(broken, "mine", stop=False))


def test_truncation_counts_only_where_prompts_are_cut(monkeypatch) -> None:
    monkeypatch.setattr(Conversation, "truncate_prompt", lambda self, question, limit: [])
    assert require_template(bind(), "mine") == []
    with pytest.raises(UserError, match="truncation"):
        require_template(bind(), "mine", truncates=True)


def problems(*answers: str | None) -> list[Problem]:
    return [Problem(id=str(i), question="q", answer=answer, source=f"d:{i}") for i, answer in enumerate(answers)]


def functions(*names: str):
    from rewards import resolve

    return [resolve(name) for name in names]


def test_golds_that_nothing_can_match_are_left_out_and_named() -> None:
    notes: list[str] = []
    kept = with_good_golds(problems("4", "", "5", "  "), notes)
    assert [p.answer for p in kept] == ["4", "5"]
    assert notes == ["2 of 4 right answers can't be parsed (d:1: '', d:3: '  '); these problems are left out"]
    with pytest.raises(UserError, match="2 of 2 right answers can't be parsed.*--answer_column"):
        with_good_golds(problems("", " "), [])


def test_golds_that_are_absent_stop_a_run_whose_reward_needs_them() -> None:
    notes: list[str] = []
    needy = functions("gsm8k_reward_fn")
    assert [p.answer for p in with_good_golds(problems("4", None), notes, needy)] == ["4"]
    assert notes == ["1 of 2 problems have no right answer, which gsm8k_reward_fn needs; these problems are left out"]
    mixed = functions("gsm8k_reward_fn", "repetition_penalty_fn")  # the second pays them
    assert len(with_good_golds(problems("4", None), notes, mixed)) == 2
    assert notes[-1].endswith("gsm8k_reward_fn needs: their responses are not paid by it")
    with pytest.raises(UserError, match="which gsm8k_reward_fn needs .*--answer_column"):
        with_good_golds(problems(None, None), [], needy)
    assert len(with_good_golds(problems(None, None), [], functions("repetition_penalty_fn"))) == 2


def test_both_checks_run_where_prompts_are_made(tmp_path: Path, monkeypatch) -> None:
    """Whatever trains on prompts gets them from here."""
    data = tmp_path / "d.jsonl"
    data.write_text("\n".join(json.dumps({"text": f"{i}+1=?"}) for i in range(10, 14)))
    config = from_dict({"data": {"prompt_dataset": [str(data)]}, "reward": {"reward_functions": ["math_reward_fn"]}})
    with pytest.raises(UserError, match="no right answer, which math_reward_fn needs"):
        build.make_prompts(config, bind())
    config.reward.reward_functions = ["format_reward_fn"]
    made = build.make_prompts(config, bind(system_message="Think."))
    assert len(made.train) == 4 and "tells the model of the format" in made.notes[0]


def test_a_share_of_own_data_is_held_out(tmp_path: Path) -> None:
    data = tmp_path / "d.jsonl"
    rows = [{"question": f"{i}+1=?", "answer": str(i + 1)} for i in range(20)]
    data.write_text("\n".join(map(json.dumps, [*rows, *rows[:5]])))  # five questions come twice
    settings = {
        "data": {"prompt_dataset": [str(data)], "eval_share": 0.4},
        "reward": {"reward_functions": ["gsm8k_reward_fn"]},
        "eval": {"eval_samples": 6},
    }
    check_config(from_dict(settings))
    made = build.make_prompts(from_dict(settings), bind())
    trained, asked = ({p.problem.question for p in part} for part in (made.train, [one.prompt for one in made.test]))
    assert len(trained) == 12 and len(asked) == len(made.test) == 6 and not trained & asked
    again = build.make_prompts(from_dict(settings | {"train": {"seed": 1}}), bind())
    assert {p.problem.question for p in again.train} != trained
    settings["data"]["eval_share"] = 0.0
    with pytest.raises(UserError, match="has no effect: there are no held-out problems.*--eval_share"):
        check_config(from_dict(settings))
    settings["data"] |= {"eval_share": 0.4, "answer_column": "none"}
    settings["reward"]["reward_functions"] = ["format_reward_fn"]
    with pytest.raises(UserError, match=r"--eval_share 0.4: none of the [0-9]+ problems .* has a right answer"):
        build.make_prompts(from_dict(settings), bind())
