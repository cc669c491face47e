"""The timeline: what is recorded, how it is written, and what the report makes of it."""

import json
from pathlib import Path

import pytest

from rlvr.boost import health, timeline
from rlvr.boost.timeline import Span
from rlvr.report.page import render
from rlvr.report.runs import read_runs
from rlvr.report.timeline import advice, last_rounds, read_spans, shares
from rlvr.tracking.tracker import TraceSink


def write(path: Path, spans: list[Span], resumed: bool = False) -> None:
    timeline.take()
    for span in spans:
        timeline.record(span)
    TraceSink(path, resumed).log(1, {})


def rounds(waits_s: float, learns_s: float, works_s: float, count: int = 4, workers: int = 2) -> list[Span]:
    """Rounds of waiting and learning, in each of which every worker is busy for some time."""
    found, now = [], 1e9
    for number in range(count):
        found += [
            Span("trainer", "rollout", now, now + waits_s),
            Span("trainer", "update", now + waits_s, now + waits_s + learns_s),
        ]
        found += [
            Span(f"rollout worker {w + 1}", f"generation, weights {number}", now, now + works_s) for w in range(workers)
        ]
        now += waits_s + learns_s
    return [*found, Span("trainer", "rollout", now, now + 1)]


def test_a_phase_that_is_entered_again_is_one_span() -> None:
    timeline.take()
    for phase in ("start", "rollout", "update", "update", "checkpoint"):
        health.enter_phase(phase)
    assert [span.name for span in timeline.take()][-2:] == ["rollout", "update"]
    health.enter_phase("start")
    assert [(span.role, span.name) for span in timeline.take()] == [("trainer", "checkpoint")]


def test_a_trace_is_what_chrome_reads_even_of_a_killed_run(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write(path, rounds(1, 2, 3))
    with path.open("a") as file:
        file.write('{"name": "upd')
    write(path, rounds(1, 2, 3), resumed=True)
    events = json.loads(path.read_text().rstrip(",\n") + "]")
    assert {event["ph"] for event in events} == {"M", "X"}
    roles = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    assert sorted(roles.values()) == ["rollout worker 1", "rollout worker 2", "trainer"]
    assert len([event for event in events if event["ph"] == "X" and roles[event["tid"]] == "trainer"]) == 18
    assert (events[1]["ts"], events[1]["dur"]) == (1e15, 1e6)
    write(path, rounds(1, 2, 3, count=1))
    assert len(read_spans(path)) == 5, "a new run begins anew"


def test_a_trace_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlvr.tracking.tracker.MAX_TRACE_BYTES", 500)
    path = tmp_path / "trace.json"
    write(path, rounds(1, 2, 3, count=1))
    size = path.stat().st_size
    write(path, rounds(1, 2, 3), resumed=True)
    assert path.stat().st_size == size > 500


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write(path, rounds(1, 2, 3, count=1))
    for bad in (b"\xff\xfe", b"[" * 5000, b'{"ph": "X", "ts": 1e400, "dur": 1, "tid": 1},', b'{"ph": "X", "ts": "a", "dur": 2},',
                b'{"ph": "X", "ts": 1, "dur": ' + b"9" * 4000 + b"},", b'{"ph": "M", "args": 3},', b"7,"):  # fmt: skip
        path.write_bytes(path.read_bytes() + bad + b"\n")
    assert len(read_spans(path)) == 5
    assert read_spans(tmp_path / "none.json") == []


def test_shares_are_of_whole_rounds() -> None:
    spans = rounds(1, 3, 2, count=9)
    shown = last_rounds(spans)
    assert len([span for span in shown if span.name == "update"]) == 4
    assert shares(shown) == pytest.approx(
        {
            ("trainer", "rollout"): 0.25,
            ("trainer", "update"): 0.75,
            ("rollout worker 1", "generation"): 0.5,
            ("rollout worker 2", "generation"): 0.5,
        }
    )
    assert last_rounds(spans[:3]) == [] and shares([]) == {} and advice([]) == ""


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        (rounds(6, 4, 9.5), "waits for rollouts 60% of the time, and rollout workers work 95% of theirs: add a worker (--num_rollout_workers 3)"),
        (rounds(6, 4, 6), "let them run further ahead (a greater --max_staleness)"),
        (rounds(1, 9, 3), "fewer workers would do"),
        (rounds(1, 9, 7), "neither waits much for the other"),
        (rounds(6, 4, 0, workers=0), "Generation takes 60% of the time. Rollout workers (--ray"),
        (rounds(1, 9, 0, workers=0), "Generation takes 10% of the time. "),
    ],
)  # fmt: skip
def test_advice(spans: list[Span], said: str) -> None:
    assert said in advice(last_rounds(spans))


def test_the_report_draws_it(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "objective/scores": 0.5}\n')
    write(tmp_path / "trace.json", rounds(6, 4, 9.5))
    page = render(read_runs([tmp_path]))
    assert 'aria-label="Timeline: rollout worker 1: generation 95%' in page
    assert "add a worker (--num_rollout_workers 3)" in page and '"base": [0.0, 10.0' in page
