"""`rlvr audit`: exit codes, the tables, and JSON."""

import json

import pytest

from rlvr.cli.audit import audit_command
from rlvr.cli.main import run

HONEST = """
from rewards import reward_fn

@reward_fn("{name}")
def f(response, gold, answer):
    return {body}
"""


@pytest.fixture
def plugin(tmp_path):
    def plugin(name: str, body: str):
        path = tmp_path / f"{name}.py"
        path.write_text(HONEST.format(name=name, body=body))
        return path

    return plugin


def audit(*words, workers=1) -> int:
    try:
        return run(audit_command, [*map(str, words), "--workers", str(workers)])
    except SystemExit as stop:
        return stop.code


def test_a_clean_function_exits_with_0(capsys) -> None:
    assert audit("format_reward_fn") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "does not look at the answer" in out and "no findings" in out


def test_findings_exit_with_1_and_are_listed(plugin, capsys) -> None:
    path = plugin("careless_of_test", "float(bool(gold) and gold in response)")
    assert audit("careless_of_test", "--reward_plugins", path) == 1
    out = capsys.readouterr().out
    assert "pays 1 for a plainly right answer, 0 for a plainly wrong one" in out
    for text in ("wrongly accepts", "wrongly rejects", "hedging: 41 or 42", "answers that say the same"):
        assert text in out


def test_a_function_in_a_file_by_its_path(plugin, capsys) -> None:
    path = plugin("by_path_of_test", "float(answer == gold)")
    assert audit(f"{path}:f", "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert report["function"] == "f" and report["looks_at_answer"] and not report["ok"]
    assert {f["kind"] for f in report["findings"]} >= {"wrongly rejects"}
    assert sum(report["tried"].values()) > 400


def test_golds_of_data_are_tried_and_bad_ones_named(tmp_path, capsys) -> None:
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"question": "q", "answer": a}) + "\n" for a in ("42", "$$", "0.5")))
    assert audit("math_reward_fn", "--data", data, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    bad = [f for f in report["findings"] if f["kind"] == "bad gold"]
    assert [f["probe"] for f in bad] == [f"{data}:2"] and bad[0]["detail"] == "can't be parsed"


def test_a_function_may_read_columns_of_the_data(tmp_path, capsys) -> None:
    (tmp_path / "f.py").write_text("def f(answer, gold, points):\n    return points * float(answer == gold)\n")
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps({"question": "q", "answer": str(p), "points": p}) + "\n" for p in (1, 2, 0)))
    assert audit(f"{tmp_path / 'f.py'}:f", "--data", data, "--json", "--workers", "0") == 1
    bad = [f for f in json.loads(capsys.readouterr().out)["findings"] if f["category"] == "gold"]
    assert [(f["probe"], f["kind"]) for f in bad] == [(f"{data}:3", "bad gold")]


def test_what_hangs_is_ended_and_told(plugin, capsys, monkeypatch) -> None:
    monkeypatch.setattr("rlvr.cli.audit.TIMEOUT_S", 0.5)
    path = plugin(
        "hangs_of_test", "float(answer == gold) if 'a' * 50000 not in response else [0 for _ in iter(int, 1)]"
    )
    assert audit("hangs_of_test", "--reward_plugins", path, "--json") == 1
    report = json.loads(capsys.readouterr().out)
    assert [f["probe"] for f in report["findings"] if f["kind"] == "hangs"] == ["200,000 letters"]


def test_this_process_does_it_too(plugin, capsys) -> None:
    path = plugin("in_process_of_test", "1 / (len(answer or '') - 1)")
    assert audit("in_process_of_test", "--reward_plugins", path, workers=0) == 1
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_options_reach_the_function(capsys) -> None:
    options = json.dumps({"soft_overlong_fn": {"max_tokens": 512, "cache_tokens": 64}})
    assert audit("soft_overlong_fn", "--reward_options", options) == 0


def test_a33_the_template_gives_the_tags(tmp_path, plugin, capsys) -> None:
    texts = {"think_start": "[T]", "think_end": "[/T]", "answer_start": "<<", "answer_end": ">>"}
    tags = {name: {"text": text, "num_occur": 1} for name, text in texts.items()}
    template = {"chat_template": None, "system_message": "", "stop_ids": None, "response_format_tags": tags}
    (tmp_path / "t.json").write_text(json.dumps(template))
    path = plugin("other_tags_of_test", "float('<<42>>' in response) if gold == '42' else 0.0")
    for words, looks in ((("--template", tmp_path / "t.json"), True), ((), False)):
        audit("other_tags_of_test", "--reward_plugins", path, "--json", *words)
        assert json.loads(capsys.readouterr().out)["looks_at_answer"] is looks


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gsm8k_reward",), "Did you mean 'gsm8k_reward_fn'?"),
        (("soft_overlong_fn",), "soft_overlong_fn needs max_tokens"),
        (("gsm8k_reward_fn", "--data", "nowhere.jsonl"), "no such file"),
        (("gsm8k_reward_fn", "--template", "nothing"), "neither a shipped template"),
        (("gsm8k_reward_fn", "--reward_options", '{"gsm8k_reward_fn": {"bonus": 1}}'), "takes no option"),
    ],
)
def test_mistakes_exit_with_2(words, message, capsys) -> None:
    assert audit(*words) == 2
    assert message in capsys.readouterr().err
