"""`rlvr eval` and `rlvr compare`: the figures against a count by hand, going on after a kill, and mistakes."""

import json
from pathlib import Path

import pytest
import torch

from rlvr.cli.main import main
from rlvr.rollout.hf import HFEngine

pytestmark = pytest.mark.usefixtures("process", "tiny_cache")
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
    out = tmp_path / "out"
    result = evaluate(
        capsys, "tiny", "--dataset", data, "--reward-functions", "gsm8k_reward_fn", *SMALL, "--save_path", out
    )
    lines = [json.loads(line) for line in (out / "responses.jsonl").read_text().splitlines()]
    right = sum(line["status"] == "correct" for line in lines)
    assert result["problems"] == 6 and result["accuracy"] == right / 6 and right >= 3
    assert result["format"] == 4 / 6 and result["truncated"] == 1 / 6
    assert result["accuracy_anyway"] == (right + 1) / 6  # the bare "4" is right but for the tags
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


SAMPLED = ["--max-samples", "10", "--num_generations", "4", "--temperature", "1", "--generation_batch_size", "8"]


def test_it_goes_on_after_a_kill_without_asking_again(tmp_path: Path, capsys, monkeypatch) -> None:
    """Five parts of two problems; the third is cut short by the kill."""
    words = ["tiny", *SAMPLED, *SMALL, "--save_path"]
    whole = evaluate(capsys, *words, tmp_path / "whole")
    asked = []
    stream = HFEngine.stream

    def counted(self, model, prompts, sampling, seed):
        asked.append(len(prompts))
        if len(asked) == 3 and not (tmp_path / "again").exists():
            raise KeyboardInterrupt
        return stream(self, model, prompts, sampling, seed)

    monkeypatch.setattr(HFEngine, "stream", counted)
    broken = tmp_path / "broken"
    assert main(["eval", *map(str, words), str(broken)]) == 130
    responses = broken / "responses.jsonl"
    assert asked == [8, 8, 8] and len(responses.read_text().splitlines()) == 16
    with responses.open("a") as file:
        file.write('{"dataset": "builtin", "probl')
    (tmp_path / "again").touch()
    asked.clear()
    resumed = evaluate(capsys, *words, broken, "--resume")
    assert asked == [8, 8, 8]
    assert resumed | {"save_path": ""} == whole | {"save_path": ""}
    assert responses.read_text() == (tmp_path / "whole" / "responses.jsonl").read_text()
    asked.clear()
    assert evaluate(capsys, *words, broken, "--resume")["accuracy"] == whole["accuracy"] and asked == []
    assert main(["eval", *map(str, words), str(broken), "--resume", "--seed", "5"]) == 2
    assert "instead of 5" in capsys.readouterr().err


def test_two_models_are_compared_problem_by_problem(tmp_path: Path, capsys) -> None:
    words = ["tiny", *SAMPLED, *SMALL, "--save_path"]
    first = evaluate(capsys, *words, tmp_path / "a")
    second = evaluate(capsys, *words, tmp_path / "b", "--seed", "0", "--temperature", "0.5")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == 10 and found["left_out"] == 0
    assert found["difference"] == pytest.approx(second["accuracy"] - first["accuracy"])
    assert found["gained"] == len(found["gained_ids"]) and found["lost"] == len(found["lost_ids"])
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 0
    assert "p = 1 " in capsys.readouterr().out
    for words, said in (
        (["a", "none"], "no evaluation"),
        (["a", "empty"], "no responses"),
        (["a", "other"], "no problem in common"),
    ):
        for name in ("empty", "other"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "settings.json").write_text("{}")
        line = {"dataset": "else", "problem": "1", "correct": True, "question": "?"}
        (tmp_path / "other" / "responses.jsonl").write_text(json.dumps(line) + "\n")
        assert main(["compare", *(str(tmp_path / word) for word in words)]) == 2
        assert said in capsys.readouterr().err


def test_pass_at_k_of_two_models_is_drawn(tmp_path: Path, capsys) -> None:
    words = ["tiny", *SAMPLED, *SMALL, "--save_path"]
    evaluate(capsys, *words, tmp_path / "a")
    drawn = ["--plot", tmp_path / "figures" / "pass.svg", "--plot_beside", tmp_path / "a"]
    evaluate(capsys, *words, tmp_path / "b", "--temperature", "0.5", *drawn)
    text = (tmp_path / "figures" / "pass.svg").read_text()
    assert "<svg" in text and text.count('<g id="FillBetweenPolyCollection') == 2
    for more, said in (
        (["--plot_beside", tmp_path / "a"], "no effect without --plot"),
        (["--plot", "pass.gif"], "must end in .png, .svg, .pdf"),
        (["--plot", "p.png", "--plot_beside", tmp_path / "none"], "no evaluation"),
        (["--plot", "p.png", "--num_generations", "1"], "give --num_generations, such as 128"),
    ):
        assert main(["eval", *map(str, [*words[:-1], *more])]) == 2
        assert said in capsys.readouterr().err


def test_several_data_sets_have_a_column_each(tmp_path: Path, capsys) -> None:
    files = [write(tmp_path / f"{n}.jsonl", {"question": f"{n}+2=?", "answer": str(n + 2)}) for n in (1, 2)]
    words = ["tiny", "--dataset", *map(str, files), "builtin", "--max_samples", "3", *SMALL]
    found = evaluate(capsys, *words)
    assert {name: part["problems"] for name, part in found["datasets"].items()} == {
        str(files[0]): 1,
        str(files[1]): 1,
        "builtin": 3,
    }
    assert found["problems"] == 5
    assert main(["eval", *words]) == 0
    table = capsys.readouterr().out
    assert "1.jsonl" in table and "builtin" in table and "95 % interval" in table


def test_two_processes_share_the_problems(tmp_path: Path, capsys, ranks) -> None:
    words = ["tiny", "--max-samples", "10", "--generation_batch_size", "4", *SMALL, "--save_path"]
    one = evaluate(capsys, *words, tmp_path / "one")
    first, second = ranks.ended([["scripts/evaluate.py", *words, tmp_path / "two", "--json"]] * 2)
    assert (first.status, second.status, second.out) == (0, 0, ""), first.err + second.err
    assert json.loads(first.out) | {"save_path": ""} == one | {"save_path": ""}  # greedy: whoever answers


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
        (["tiny", "--num_generations", "4"], "temperature"),
        (["tiny", "--num_generations", "0"], "--num_generations"),
        (["tiny", "--resume"], "--save_path"),
        (["tiny", "--dataset", "builtin", "builtin"], "twice"),
        (["tiny", "--dataset", "ungraded.jsonl"], "--answer_column"),
        (["tiny", "--save_path", "ungraded.jsonl/x", "--max_samples", "1", *SMALL], "--save_path ungraded.jsonl/x"),
    ],
)
def test_mistakes(words, said, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    write(tmp_path / "ungraded.jsonl", {"text": "2+2=?"})
    assert main(["eval", *words]) == 2
    told = capsys.readouterr().err
    assert said in told and "Traceback" not in told and told.count("error:") == 1


@pytest.mark.parametrize(("flags", "said"), [([], "greedy"), (["--temperature", "0.7"], "at temperature 0.7")])
def test_the_table_says_how_responses_were_drawn(flags, said, micro_model, capsys) -> None:
    words = ["--dataset", "builtin", "--max_samples", "2", "--max_new_tokens", "4", "--conversation_template_config"]
    assert main(["eval", micro_model, *words, "tiny", "--num_threads", "1", *flags]) == 0
    assert f"1 response(s) each, {said}" in " ".join(capsys.readouterr().out.split())
