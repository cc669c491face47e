"""`rlvr score`: files of every kind, broken lines, columns, and what is written."""

import json
import math

import pytest

from rlvr.cli.main import run
from rlvr.cli.score import score_command

ROWS = [
    {"question": "6 * 7?", "response": "<think>a</think><answer>42</answer>", "gold": "42"},
    {"question": "6 * 8?", "response": "<think>a</think><answer>47</answer>", "gold": "48"},
    {"question": "6 * 9?", "response": "54", "gold": ""},
]


@pytest.fixture
def write(tmp_path):
    def write(name: str, text: str | bytes):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        return path

    return write


def jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def score(*words) -> int:
    try:
        return run(score_command, [*map(str, words), "--workers", "1"])
    except SystemExit as stop:
        return stop.code


def scores(path, name="math_reward_fn") -> list:
    return [json.loads(line)["scores"][name]["score"] for line in path.read_text().splitlines()]


def test_jsonl(write, tmp_path, capsys) -> None:
    path, out = write("a.jsonl", jsonl(ROWS)), tmp_path / "scores.jsonl"
    names = ["math_reward_fn", "format_reward_fn"]
    assert score(path, "--reward", *names, "--weights", 1, 0.5, "--output", out) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["place"] for line in lines] == [f"{path}:{n}" for n in (1, 2, 3)]
    assert [line["total"] for line in lines] == [1.5, 0.5, 0.0]
    assert [line["scores"]["math_reward_fn"]["status"] for line in lines] == ["correct", "wrong", "bad_gold"]
    assert scores(out) == [1.0, 0.0, None] and scores(out, "format_reward_fn") == [1.0, 1.0, 0.0]
    summary = capsys.readouterr().out
    for text in ("3 responses", "math_reward_fn", "0.5000", "0.6667", "bad_gold", "weighted sum"):
        assert text in summary


@pytest.mark.parametrize("kind", ["csv", "json", "lines", "parquet"])
def test_other_kinds_of_files_score_alike(kind, write, tmp_path) -> None:
    if kind == "csv":
        text = "question,response,gold\n" + "".join(f"{r['question']},{r['response']},{r['gold']}\n" for r in ROWS)
        path = write("a.csv", text)
    elif kind == "json":
        path = write("a.json", json.dumps(ROWS))
    elif kind == "lines":
        path = write("a.json", jsonl(ROWS))
    else:
        table = pytest.importorskip("pyarrow").Table.from_pylist(ROWS)
        path = tmp_path / "a.parquet"
        pytest.importorskip("pyarrow.parquet").write_table(table, path)
    out = tmp_path / "scores.jsonl"
    assert score(path, "--reward", "math_reward_fn", "--output", out) == 0
    assert scores(out) == [1.0, 0.0, None]


def test_broken_lines_are_named_and_the_rest_is_scored(write, tmp_path, capsys) -> None:
    good = json.dumps(ROWS[0]).encode()
    broken = [
        b"{",
        b"[1]",
        b'{"response": 5, "gold": "1"}',
        b'{"gold": "1"}',
        b'{"response": "\xff", "gold": "1"}',
        b"[" * 100_000,
    ]
    broken.append(b'{"response": "a", "gold": ["42"]}')
    broken.append(b'{"response": "a", "gold": true}')
    path = write("a.jsonl", b"\n".join([good, *broken, b"", good]))
    out = tmp_path / "scores.jsonl"
    assert score(path, "--reward", "math_reward_fn", "--output", out) == 1
    assert scores(out) == [1.0, 1.0]
    told = capsys.readouterr().err
    assert "8 broken lines" in told and all(f"a.jsonl:{n}: " in told for n in range(2, 10)) and "a.jsonl:10" not in told


def test_broken_lines_of_a_csv(write, tmp_path, capsys) -> None:
    path = write("a.csv", b'response,gold\n42,42\n1,2,3\n\xff,42\n41,42\n"open,42\n')
    out = tmp_path / "scores.jsonl"
    assert score(path, "--reward", "math_reward_fn", "--output", out) == 1
    assert scores(out) == [1.0, 0.0]
    told = capsys.readouterr().err
    assert "3 broken" in told and "a.csv:3" in told and "a.csv:4" in told and "a.csv:6" in told


def test_long_cells_of_a_csv_are_read(write, tmp_path) -> None:
    path, out = write("a.csv", f"response,gold\n{'so ' * 100_000}42,42\n"), tmp_path / "scores.jsonl"
    assert score(path, "--reward", "math_reward_fn", "--output", out) == 0
    assert scores(out) == [1.0]


def test_a_first_line_without_the_columns_is_only_a_broken_line(write, tmp_path, capsys) -> None:
    path, out = write("a.jsonl", jsonl([{"other": 1}, *ROWS])), tmp_path / "scores.jsonl"
    assert score(path, "--reward", "math_reward_fn", "--output", out) == 1
    assert scores(out) == [1.0, 0.0, None] and "a.jsonl:1: no column 'response'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "words", "message"),
    [
        ("a.jsonl", "", (), "holds no rows"),
        ("a.jsonl", "{\n", (), "nothing in it can be read"),
        ("a.csv", "", (), "nothing in it can be read"),
        ("a.csv", '"open', (), "not valid CSV"),
        ("a.csv", "response,gold,gold\n1,2,3\n", (), "more than once"),
        ("a.parquet", "no", (), "Parquet"),
        ("a.txt", "x", (), "must end in"),
        (
            "a.jsonl",
            jsonl(ROWS),
            ("--response_column", "text"),
            "no column 'text'; the columns are question, response, gold",
        ),
        ("a.jsonl", jsonl(ROWS), ("--gold_column", "truth"), "looked for truth"),
        ("a.jsonl", '{"response": "a"}\n', (), "no column with right answers, which math_reward_fn needs"),
        ("a.jsonl", '{"response": 5, "gold": "1"}\n', (), "must hold text"),
        ("a.jsonl", jsonl(ROWS), ("--weights", "1", "2"), "2 reward weights for 1"),
        ("a.jsonl", jsonl(ROWS), ("--reward_plugins", "nowhere.py"), "no file nowhere.py"),
        ("a.jsonl", jsonl(ROWS), ("--reward_options", "{"), "not valid JSON"),
        ("a.jsonl", jsonl(ROWS), ("--template", "nothing"), "neither a shipped template"),
        ("a.jsonl", jsonl(ROWS), ("--output", "no/such/folder/out.jsonl"), "--output no/such/folder"),
        ("a.jsonl", jsonl(ROWS), ("--workers", "-2"), "--workers"),
    ],
)
def test_mistakes_are_told_in_one_line(name, text, words, message, write, capsys) -> None:
    assert run(score_command, [str(write(name, text)), "--reward", "math_reward_fn", *words]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1 and told.startswith("error: ")


def test_no_such_file_and_no_such_function(write, tmp_path, capsys) -> None:
    path = write("answers.jsonl", jsonl(ROWS))
    assert score(tmp_path / "answer.jsonl", "--reward", "math_reward_fn") == 2
    assert "Did you mean 'answers.jsonl'?" in capsys.readouterr().err
    assert score(path, "--reward", "maths_reward_fn") == 2
    assert "Did you mean 'math_reward_fn'?" in capsys.readouterr().err


def test_golds_are_read_as_in_training(write, tmp_path) -> None:
    golds = [42, 42.0, "so 6 * 7 = 42\n#### 42", r"thus $\boxed{42}$", "42"]
    path, out = write("a.jsonl", jsonl({"out": "42", "truth": gold} for gold in golds)), tmp_path / "scores.jsonl"
    words = ("--response_column", "out", "--gold_column", "gold,truth")
    assert score(path, "--reward", "math_reward_fn", "--output", out, *words) == 0
    assert scores(out) == [1.0] * 5


def test_a_reward_without_gold_needs_no_column(write, tmp_path) -> None:
    path, out = write("a.jsonl", jsonl([{"response": "a a a a"}])), tmp_path / "scores.jsonl"
    assert score(path, "--reward", "repetition_penalty_fn", "--output", out) == 0
    assert math.isclose(scores(out, "repetition_penalty_fn")[0], -0.5)


def test_a33_the_template_says_which_tags_count(write, tmp_path) -> None:
    tags = {"think_start": "[T]", "think_end": "[/T]", "answer_start": "<<", "answer_end": ">>"}
    template = {"chat_template": None, "system_message": "", "stop_ids": None}
    tags = {name: {"text": text, "num_occur": 1} for name, text in tags.items()}
    path = write("t.json", json.dumps(template | {"response_format_tags": tags}))
    data, out = write("a.jsonl", jsonl([{"response": "[T]a[/T]<<42>>", "gold": "42"}])), tmp_path / "scores.jsonl"
    assert score(data, "--reward", "gsm8k_reward_fn", "--output", out, "--template", path) == 0
    assert scores(out, "gsm8k_reward_fn") == [1.0]
    assert score(data, "--reward", "gsm8k_reward_fn", "--output", out) == 0
    assert scores(out, "gsm8k_reward_fn") == [0.0]


def test_a_plugin_that_raises_is_told_and_does_not_stop_the_rest(write, tmp_path, capsys) -> None:
    plugin = write(
        "mine.py",
        "from rewards import reward_fn\n\n@reward_fn('brittle_of_test')\ndef f(response, gold):\n    return float(response == gold) / len(gold)\n",
    )
    out = tmp_path / "scores.jsonl"
    path = write("a.jsonl", jsonl([{"response": "42", "gold": "42"}, {"response": "42", "gold": ""}]))
    assert score(path, "--reward", "brittle_of_test", "--reward_plugins", plugin, "--output", out) == 0
    assert scores(out, "brittle_of_test") == [0.5, None]
    told = capsys.readouterr()
    assert "error" in told.out and "brittle_of_test raised, first: ZeroDivisionError" in told.err


def test_columns_of_the_file_reach_the_function(write, tmp_path) -> None:
    plugin = write(
        "mine2.py",
        "from rewards import reward_fn\n\n@reward_fn('columns_of_test')\ndef f(level, response_ids, finished, question):\n    return level + len(response_ids) + (not finished) + (question == 'q')\n",
    )
    row = {"response": "a", "level": 10, "response_ids": [1, 2], "finished": False, "question": "q"}
    out = tmp_path / "scores.jsonl"
    words = ("--reward", "columns_of_test", "--reward_plugins", plugin, "--output", out)
    assert score(write("a.jsonl", jsonl([row])), *words) == 0
    assert scores(out, "columns_of_test") == [14.0]
