"""Sources of every kind, several at once."""

import json
from pathlib import Path

import pytest

from rlvr.data.readers import read_problems
from rlvr.data.rows import read_rows
from rlvr.errors import UserError

ROWS = [{"question": f"{a}+1?", "answer": a + 1, "level": a % 3} for a in range(20)]


def write(path: Path, rows: list[dict] = ROWS) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix in (".csv", ".tsv"):
        between = "," if path.suffix == ".csv" else "\t"
        path.write_text("\n".join([between.join(rows[0]), *(between.join(map(str, row.values())) for row in rows)]))
    elif path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def test_every_kind_of_file_gives_the_same_problems(tmp_path: Path) -> None:
    from_json, from_csv, *others = (
        read_problems([write(tmp_path / f"d.{n}")]) for n in ("jsonl", "csv", "tsv", "parquet")
    )
    for other in others:
        assert [(p.id, p.question, p.answer) for p in other] == [(p.id, p.question, p.answer) for p in from_json]
    assert others[1][3].columns == {"level": 0} and others[1][3].source == f"{tmp_path / 'd.parquet'}, row 4"
    assert [(p.id, p.question, p.answer) for p in from_json] == [(p.id, p.question, p.answer) for p in from_csv]
    assert from_json[3].columns == {"level": 0} and from_csv[3].columns == {"level": "0"}
    assert from_json[3].source == f"{tmp_path / 'd.jsonl'}:4" and from_csv[3].source == f"{tmp_path / 'd.csv'}:5"


def test_several_sources_with_columns_of_their_own(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.jsonl"), write(tmp_path / "b.csv", [{"problem": "6*7?", "gold": 42}])
    problems = read_problems([first, second, "builtin:test"], limit=None)
    assert len(problems) == 20 + 1 + 2000
    assert (problems[20].question, problems[20].answer) == ("6*7?", "42")
    assert problems[21].source.startswith("builtin")


def test_folder_reads_the_files_of_the_split(tmp_path: Path) -> None:
    write(tmp_path / "d" / "train.jsonl", ROWS[:5])
    write(tmp_path / "d" / "test.csv", ROWS[5:7])
    assert len(read_problems([str(tmp_path / "d")])) == 7
    assert len(read_problems([str(tmp_path / "d")], split="train")) == 5
    assert len(read_problems([str(tmp_path / "d")], split="test")) == 2
    # A file that is named is read, whatever split is wished for.
    assert len(read_problems([str(tmp_path / "d" / "test.csv")], split="train")) == 2


def test_named_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", [{"question": "no", "answer": "no", "task": "6*7?", "result": 42}])
    (problem,) = read_problems([path], question_column="task", answer_column="result")
    assert (problem.question, problem.answer) == ("6*7?", "42")
    assert problem.columns == {"question": "no", "answer": "no"}


def test_builtin_splits() -> None:
    train, test = read_problems(["builtin"], limit=300), read_problems(["builtin"], split="test", limit=300)
    assert len(train) == len(test) == 300
    assert not {p.question for p in train} & {p.question for p in test}
    assert read_problems(["builtin:test"], split="train", limit=300) == test
    assert read_problems(["builtin"], limit=300, seed=1) != train
    with pytest.raises(UserError, match="no split 'tset'; give builtin:train, builtin:test. Did you mean 'test'"):
        read_problems(["builtin:tset"])


def test_limit_draws_a_sample_in_the_order_of_the_data(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl")
    everything = read_problems([path])
    sample = read_problems([path], limit=7, seed=3)
    places = [everything.index(problem) for problem in sample]
    assert len(sample) == 7 and places == sorted(places) != list(range(7))
    assert sample == read_problems([path], limit=7, seed=3) != read_problems([path], limit=7, seed=4)
    assert read_problems([path], limit=100) == everything
    with pytest.raises(UserError, match="at most 0 problems.*at least 1"):
        read_problems([path], limit=0)


def test_ids_are_unique_and_stable(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", [*ROWS, ROWS[0]])
    ids = [problem.id for problem in read_problems([path, path])]
    assert len(set(ids)) == len(ids) == 42
    assert ids[20] == f"{ids[0]}-2" and ids[21] == f"{ids[0]}-3"
    assert ids[:20] == [problem.id for problem in read_problems([write(tmp_path / "moved.csv")])]


# ---- what can't be read


def test_no_source() -> None:
    with pytest.raises(UserError, match="no data: give at least one"):
        read_problems([])


def test_missing_files(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl")
    with pytest.raises(UserError, match=r"trian\.jsonl: no such file\. Did you mean 'train\.jsonl'"):
        read_problems([str(tmp_path / "trian.jsonl")])
    with pytest.raises(UserError, match="no such file"):
        read_problems(["./nowhere"])
    with pytest.raises(UserError, match=r"empty: holds no file"):
        (tmp_path / "empty").mkdir()
        read_problems([str(tmp_path / "empty")])


def test_sources_that_are_nothing() -> None:
    with pytest.raises(
        UserError,
        match="'builtni' is neither a file nor a folder; give builtin, arithmetic, word_problems, .*Did you mean 'builtin'",
    ):
        read_problems(["builtni"])
    with pytest.raises(UserError, match="Did you mean 'openai/gsm8k'"):
        read_problems(["gsm8k"])
    with pytest.raises(UserError, match="is an address; download the file"):
        read_problems(["https://example.com/d.csv"])


def test_empty_file_missing_column_and_wrong_type(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(UserError, match=r"empty\.jsonl: holds no rows"):
        read_problems([str(tmp_path / "empty.jsonl")])
    with pytest.raises(UserError, match=r"data file .*foo\.jsonl: no question column.*foo, answer"):
        read_problems([write(tmp_path / "foo.jsonl", [{"foo": "1+1", "answer": "2"}])])
    with pytest.raises(UserError, match=r"odd\.jsonl:2: column 'question' must hold text.*not int \(3\)"):
        read_problems([write(tmp_path / "odd.jsonl", [ROWS[0], {"question": 3, "answer": "2"}])])
    with pytest.raises(
        UserError, match=r"odd\.jsonl:3: column 'answer' must hold the right answer.*not list \(\[1, 2\]\)"
    ):
        read_problems([write(tmp_path / "odd.jsonl", [*ROWS[:2], {"question": "q", "answer": [1, 2]}])])


def test_read_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "d" / "d.jsonl")
    assert read_rows(path) == read_rows(str(tmp_path / "d"))
    with pytest.raises(UserError, match="no such file"):
        read_rows(str(tmp_path / "none.jsonl"))


# ---- the labelled sets


@pytest.mark.parametrize(
    ("name", "size", "first"),
    [
        ("gsm8k_train", 7473, "72"),
        ("gsm8k_test", 1319, "18"),
        ("math500", 500, r"\left( 3, \frac{\pi}{2} \right)"),
        ("math_train", 7470, "0"),
        ("aime24", 30, "204"),
        ("svamp", 1000, "145.0"),
    ],
)
def test_real_sets(shared_data: Path, name: str, size: int, first: str) -> None:
    problems = read_problems([str(shared_data / "problems" / f"{name}.jsonl")])
    assert len(problems) == size == len({p.id for p in problems}) and problems[0].answer == first
    assert all(p.answer for p in problems)


def test_gsm8k_solutions_give_the_listed_answers(shared_data: Path) -> None:
    """The hub's form of the set has only the solution; its `#### x` is the answer that our copy lists."""
    path = str(shared_data / "problems" / "gsm8k_test.jsonl")
    listed, parsed = read_problems([path]), read_problems([path], answer_column="solution")
    assert [p.answer for p in listed] == [p.answer for p in parsed]
