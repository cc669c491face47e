"""Rows of metrics and settings are whole whatever happens while they are written; a tracker that fails is left out."""

import errno
import os
from pathlib import Path

import pytest

from rlvr.errors import UserError
from rlvr.tracking.samples import TrackedSample
from rlvr.tracking.tracker import (
    SAMPLE_ROWS,
    JsonlSink,
    MemorySink,
    Sink,
    Tracker,
    append_json,
    replace_text,
)


def test_a_resumed_run_drops_later_rows_and_those_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2}\n{"step": 3}\n{"ste')
    assert JsonlSink(path, keep_below=3).found_through == 3
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
    assert JsonlSink(tmp_path / "none.jsonl", keep_below=3).found_through == -1


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


class Far(Sink):
    """A tracker elsewhere, which goes away when it is told to."""

    name = "Far"

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.tables: list[int] = []
        self.closed: bool | None = None
        self.error: Exception | None = None

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        return (OSError,)

    def log(self, step, metrics) -> None:
        if self.error:
            raise self.error
        self.steps.append(step)

    def log_samples(self, step, samples) -> None:
        self.tables.append(len(samples))

    def close(self, failed: bool) -> None:
        self.closed = failed
        if self.error:
            raise self.error


def tracked(*sinks: Sink) -> tuple[Tracker, list[str]]:
    tracker, said = Tracker(sinks), list[str]()
    tracker.warn = said.append
    return tracker, said


def test_a_tracker_that_is_gone_is_left_out_with_one_warning() -> None:
    memory, far = MemorySink(), Far()
    tracker, said = tracked(memory, far)
    tracker.log(1, {"x": 1.0})
    far.error = ConnectionRefusedError("nobody there\nand more")
    for step in (2, 3):
        tracker.log(step, {"x": 1.0})
    assert [row["step"] for row in memory.rows] == [1, 2, 3] and far.steps == [1]
    assert len(said) == 1 and said[0].startswith("Far failed") and "nobody there. Training goes on" in said[0]
    assert "and more" not in said[0]
    tracker.close()
    assert far.closed is None and len(said) == 1


def test_a_mistake_in_the_code_is_passed_on() -> None:
    far = Far()
    far.error = TypeError("log() takes no such thing")
    tracker, said = tracked(far)
    with pytest.raises(TypeError, match="no such thing"):
        tracker.log(1, {})
    assert not said


def test_a_full_disk_still_stops_a_run_whose_rows_can_not_be_kept(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "rows.jsonl")
    sink.path = tmp_path / "gone" / "rows.jsonl"
    with pytest.raises(UserError, match="can't write"):
        tracked(sink)[0].log(1, {})


def test_closing_says_whether_the_run_failed_and_hides_no_error() -> None:
    for error in (None, OSError("gone")):
        far = Far()
        far.error = error
        tracker, said = tracked(far)
        tracker.close()
        assert far.closed is False and len(said) == (error is not None) and tracker.sinks == []
        far = Far()
        with pytest.raises(ZeroDivisionError):
            try:
                1 / 0  # noqa: B018
            finally:
                tracked(far)[0].close()
        assert far.closed is True


def test_rows_that_a_tracker_has_are_not_sent_again() -> None:
    memory, far = MemorySink(), Far()
    far.has_through = 4
    tracker, _ = tracked(memory, far)
    for step in range(3, 7):
        tracker.log(step, {})
    assert [row["step"] for row in memory.rows] == [3, 4, 5, 6] and far.steps == [5, 6]


def test_a_session_shows_so_many_responses_and_no_more() -> None:
    far = Far()
    tracker, _ = tracked(far)
    eight = [TrackedSample("p", "r", "", "", "", "-", None)] * 8
    for step in range(SAMPLE_ROWS // 8 + 10):
        tracker.log_samples(step, eight)
    assert sum(far.tables) == SAMPLE_ROWS and far.tables[0] == 8 and 0 not in far.tables


def test_a_damaged_row_does_not_block_a_resume(tmp_path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe\n[1]\n{"step": 2}\n{"step": 3}\n')
    JsonlSink(path, keep_below=3)
    assert path.read_text() == '{"step": 1}\n{"step": 2}\n'
