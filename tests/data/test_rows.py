"""Files as rows: what is read, and what is said of each way in which a file can be broken."""

import json
import os
from pathlib import Path

import pytest

from rlvr.data.rows import find_files, missing_file, read_file
from rlvr.errors import UserError


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refused(path: Path, text: str | bytes) -> str:
    with pytest.raises(UserError) as error:
        read_file(write(path, text))
    return str(error.value)


def test_jsonl_rows_know_their_line(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", '\ufeff{"q": "a\u2028b"}\r\n\n  \n{"q": 2}')
    rows = read_file(path)
    assert [(row.values, row.place) for row in rows] == [({"q": "a\u2028b"}, f"{path}:1"), ({"q": 2}, f"{path}:4")]


def test_json_holds_lines_or_one_list(tmp_path: Path) -> None:
    lines = write(tmp_path / "lines.json", '{"q": 1}\n{"q": 2}\n')
    assert [row.place for row in read_file(lines)] == [f"{lines}:1", f"{lines}:2"]
    whole = write(tmp_path / "whole.json", json.dumps([{"q": 1}, {"q": 2}], indent=1))
    assert [(row.values["q"], row.place) for row in read_file(whole)] == [
        (1, f"{whole}, item 1"),
        (2, f"{whole}, item 2"),
    ]


def test_csv_rows_know_the_line_that_they_begin_on(tmp_path: Path) -> None:
    path = write(tmp_path / "d.csv", 'q,a\n"two\nlines, and a ""quote""",1\nplain,\n')
    rows = read_file(path)
    assert [row.place for row in rows] == [f"{path}:2", f"{path}:4"]
    assert rows[0].values == {"q": 'two\nlines, and a "quote"', "a": "1"} and rows[1].values["a"] == ""


def test_broken_json(tmp_path: Path) -> None:
    assert "d.jsonl:2: not valid JSON" in refused(tmp_path / "d.jsonl", '{"q": 1}\n{"q": \n')
    assert "d.jsonl:2: each row must be a JSON object of columns, not list" in refused(
        tmp_path / "d.jsonl", '{"q": 1}\n[1]\n'
    )
    assert "d.json:3: not valid JSON" in refused(tmp_path / "d.json", '[{"q": 1},\n{"q": 2},\n{"q"]')
    assert "d.json, item 2: each row must be a JSON object" in refused(tmp_path / "d.json", '[{"q": 1}, 7]')
    assert "d.jsonl:1: not usable JSON: nested too deeply" in refused(tmp_path / "d.jsonl", '{"q": ' + "[" * 200_000)
    assert "d.jsonl:1: not usable JSON: Exceeds the limit" in refused(tmp_path / "d.jsonl", '{"q": ' + "9" * 5000 + "}")


def test_broken_csv(tmp_path: Path) -> None:
    assert "d.csv:3: 3 cells where the header has 2 (q, a)" in refused(tmp_path / "d.csv", "q,a\n1,2\n1,2,3\n")
    assert "d.tsv:2: 1 cells where the header has 2 (q, a); put texts with tabs" in refused(
        tmp_path / "d.tsv", "q\ta\n1,2\n"
    )
    assert "d.csv:2: not valid CSV" in refused(tmp_path / "d.csv", 'q,a\n"never closed,2\n3,4\n')
    assert "d.csv:1: the header names 'q' more than once" in refused(tmp_path / "d.csv", "q,q\n1,2\n")


@pytest.mark.parametrize("name", ["d.jsonl", "d.json", "d.csv"])
def test_empty_files(tmp_path: Path, name: str) -> None:
    for text in ("", "\n\n"):
        assert f"{name}: holds no rows" in refused(tmp_path / name, text)
    assert "holds no rows" in refused(tmp_path / "list.json", "[]")
    assert "holds no rows" in refused(tmp_path / "header.csv", "q,a\n")


def test_files_that_are_no_text_or_not_ours(tmp_path: Path) -> None:
    assert "d.jsonl: not UTF-8" in refused(tmp_path / "d.jsonl", b'{"q": "\xff"}')
    assert "must end in .jsonl, .json, .csv, .tsv, .parquet, not '.xls'" in refused(tmp_path / "d.xls", "x")
    assert "d.parquet, after row 0: not valid Parquet" in refused(tmp_path / "d.parquet", "x")
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UserError, match=r"folder\.jsonl: Is a directory"):
        read_file(tmp_path / "folder.jsonl")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = write(tmp_path / "d.jsonl", "{}")
    path.chmod(0)
    with pytest.raises(UserError, match="Permission denied"):
        read_file(path)


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", "{}")
    assert "no such file. Did you mean 'train.jsonl'?" in str(missing_file(tmp_path / "trian.jsonl"))
    assert f"there is no folder {tmp_path / 'no'} either" in str(missing_file(tmp_path / "no" / "train.jsonl"))


def test_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"holds no file that ends in \.jsonl, \.json, \.csv"):
        find_files(tmp_path)
    for name in ("b.csv", "a.jsonl", "notes.txt"):
        write(tmp_path / name, "x")
    assert [p.name for p in find_files(tmp_path)] == ["a.jsonl", "b.csv"]
    assert [p.name for p in find_files(tmp_path, "test")] == ["a.jsonl", "b.csv"]


def test_folder_whose_files_name_their_split(tmp_path: Path) -> None:
    for name in ("gsm8k_train.jsonl", "gsm8k-test.jsonl", "train.csv"):
        write(tmp_path / name, "x")
    assert [p.name for p in find_files(tmp_path, "train")] == ["gsm8k_train.jsonl", "train.csv"]
    assert [p.name for p in find_files(tmp_path, "test")] == ["gsm8k-test.jsonl"]
    assert len(find_files(tmp_path)) == 3
    with pytest.raises(UserError, match="no file of the split 'validation' among gsm8k-test.jsonl, gsm8k_train.jsonl"):
        find_files(tmp_path, "validation")
