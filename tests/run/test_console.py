"""What a run prints while it works: a line now and then where there is no terminal, and samples without the system prompt."""

import io
import json
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from rewards.sample import Sample
from rlvr.boost.health import Work, enter_phase, report_progress
from rlvr.cli.main import main
from rlvr.run import console as module
from rlvr.run.console import ConsoleView, Heartbeat, episode_line, work_line


def printed(**options: Any) -> Console:
    return Console(file=io.StringIO(), width=300, **options)


def text_of(console: Console) -> str:
    return console.file.getvalue()  # type: ignore[attr-defined]


def wait_for(console: Console, words: str) -> None:
    deadline = time.monotonic() + 20
    while words not in text_of(console):
        assert time.monotonic() < deadline, text_of(console)
        time.sleep(0.01)


def test_a_line_now_and_then_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.02)
    console = printed()
    heartbeat = Heartbeat(console)
    enter_phase("rollout")
    report_progress(0, 64)
    heartbeat.start()
    wait_for(console, "rollout (")
    report_progress(16, 64)
    wait_for(console, "rollout 16/64, ")
    enter_phase("update")
    wait_for(console, "update (")
    heartbeat.stop()
    before = text_of(console)
    time.sleep(0.1)
    assert text_of(console) == before


@pytest.mark.parametrize("options", [{"force_terminal": True}, {"quiet": True}])
def test_no_line_beside_a_bar_or_in_other_processes(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.01)
    console = printed(**options)
    heartbeat = Heartbeat(console)
    heartbeat.start()
    time.sleep(0.1)
    heartbeat.stop()
    assert text_of(console) == ""


def test_rate_and_time_left_are_those_of_what_is_counted() -> None:
    work = Work("update", since_s=100.0, done=2, total=8, counted_since_s=110.0)
    assert work_line(work, 120.0) == "    update 2/8, 0.2 a second, about 30 s left (20 s so far)"
    assert work_line(Work("score", 100.0), 107.0) == "    score (7 s so far)"


def test_counting_begins_anew_with_each_piece_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr.boost import health

    clock = iter(range(1000, 2000, 10))
    monkeypatch.setattr(health.time, "time", lambda: next(clock))
    reporter = health.StatusReporter()
    reporter.enter("update")
    began = []
    for done, total in ((0, 4), (1, 4), (3, 4), (0, 4), (1, 4), (1, 9)):
        reporter.progress(done, total)
        began.append(reporter.work.counted_since_s)
    assert began[0] == began[1] == began[2] < began[3] == began[4] < began[5]


def test_a_sample_is_shown_with_its_question_and_without_the_system_prompt() -> None:
    console, logged = printed(), []
    view = ConsoleView(console, live=False, sample_every=1)
    sample = Sample(
        "It is 4.", "4", prompt="<|im_start|>system\nBe brief.<|im_end|> What is 2 + 2?", question="What is 2 + 2?"
    )
    result = SimpleNamespace(outcome=None, total=1.0)
    tracker: Any = SimpleNamespace(log_samples=lambda step, rows: logged.extend(rows))
    view._show_samples(tracker, SimpleNamespace(samples=[sample], results=[result]), 1)  # type: ignore[arg-type]
    assert "What is 2 + 2? It is 4." in text_of(console) and "Be brief" not in text_of(console)
    assert "Be brief" in logged[0].prompt


def test_written_samples_are_scored_by_functions_that_read_a_column(tmp_path: Path) -> None:
    view = ConsoleView(printed(), live=False, sample_every=1, samples_path=tmp_path / "samples.jsonl")
    columns = {"points": 3, "gold": "not this", "when": datetime(2026, 1, 1)}
    sample = Sample("so 4", "4", prompt="<|user|>2+2?", question="2+2?", columns=columns)
    result = SimpleNamespace(outcome=None, total=1.0)
    tracker: Any = SimpleNamespace(log_samples=lambda step, rows: None)
    view._show_samples(tracker, SimpleNamespace(samples=[sample], results=[result]), 1)  # type: ignore[arg-type]
    (tmp_path / "f.py").write_text(
        "def f(gold, question, points):\n    return points if (gold, question) == ('4', '2+2?') else 0\n"
    )
    out = tmp_path / "scores.jsonl"
    words = ["score", str(tmp_path / "samples.jsonl"), "--reward", f"{tmp_path / 'f.py'}:f", "--output", str(out)]
    assert main([*words, "--workers", "0"]) == 0
    assert json.loads(out.read_text())["total"] == 3


@pytest.mark.parametrize("terminal", [True, False])
def test_lines_break_between_words_on_a_terminal_and_nowhere_else(terminal: bool) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal, no_color=True)
    metrics = {"objective/scores": 0.5, "outcome/correct": 0.25} | {
        f"time/{name}": 1.0 for name in ("rollout", "reward", "score", "update")
    }
    plan = SimpleNamespace(num_episodes=40)
    ConsoleView(console, live=False).on_episode_end(
        SimpleNamespace(plan=plan), 0, metrics | {"memory/rss_peak_bytes": 2.0**30}
    )
    lines = text_of(console).splitlines()
    assert " ".join(" ".join(lines).split()) == " ".join(
        f"1/40  {episode_line(metrics | {'memory/rss_peak_bytes': 2.0**30})}".split()
    )
    assert (len(lines) == 1) is not terminal and (not terminal or max(map(len, lines)) <= 80)
