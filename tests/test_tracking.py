"""Rows of metrics and settings are whole whatever happens while they are written."""

import errno
import os
from pathlib import Path

import pytest

from rlvr.errors import UserError
from rlvr.tracking import JsonlSink, append_json, replace_text


def test_a_resumed_run_drops_later_rows_and_those_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    JsonlSink(path, keep_below=3)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'


def test_what_can_not_be_written_leaves_what_was_there(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"can't write .*config.yaml: No space left on device; free space"):
        replace_text(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["config.yaml"]
    with pytest.raises(UserError, match="can't write .*nowhere/rows.jsonl: No such file"):
        append_json(tmp_path / "nowhere" / "rows.jsonl", {})
