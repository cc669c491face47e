"""The report: what it reads, what it draws, what it must not let through. (tests/report/test_page.py looks at it in a browser.)"""

import http.client
import json
import math
import os
import re
import socket
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from report_harness import EVIL, make_run

from rlvr.cli.main import main
from rlvr.cli.report import make_server
from rlvr.errors import UserError
from rlvr.report.charts import TOPICS, charts_of
from rlvr.report.page import differing_settings, parts_of, render
from rlvr.report.runs import read_runs


def panel(title: str):
    return next(p for panels in TOPICS.values() for p in panels if p.title == title)


def test_curves_are_the_metrics(tmp_path: Path) -> None:
    (run,) = read_runs([make_run(tmp_path / "a", outcome__correct=lambda i: math.nan if i == 3 else 0.1 * i)])
    (chart,) = charts_of([run], [panel("Right answers in training")])
    (trace,) = chart.traces
    assert trace["x"] == [1, 2, *range(4, 13)] and trace["y"][:3] == pytest.approx([0.1, 0.2, 0.4])
    assert chart.table == [("Right answers in training", "10.0%", "120.0%", "120.0%")]
    assert any("NaN" in note and "outcome/correct" in note for note in run.notes)


def test_the_band_is_the_interval_of_the_accuracy(tmp_path: Path) -> None:
    (run,) = read_runs([make_run(tmp_path / "a")])
    (chart,) = charts_of([run], [panel("Held-out accuracy")])
    low, high, line = chart.traces
    assert (low["y"], line["y"], high["y"]) == ([0.15, 0.65], [0.25, 0.75], [0.3, 0.8])
    assert line["x"] == low["x"] == high["x"] == [0, 12] and high["fill"] == "tonexty"
    run.rows[-1]["eval/accuracy_low"] = math.nan  # an interval that is not there at all steps is not drawn
    assert len(next(charts_of([run], [panel("Held-out accuracy")])).traces) == 1


def test_several_data_sets_have_a_curve_each(tmp_path: Path) -> None:
    changes = {
        "eval__gsm8k__accuracy": lambda i: 0.01 * i,
        "eval__svamp__accuracy": lambda i: 0.02 * i,
        "eval__svamp__accuracy_low": lambda i: 0.01 * i,
        "eval__svamp__accuracy_high": lambda i: 0.03 * i,
    }
    k = {f"eval__{name}__pass_at_{k}": lambda i, k=k: 0.01 * k for name in ("gsm8k", "svamp") for k in (2, 4, 16)}
    k |= {"eval__pass_at_16": lambda i: 0.16, "eval__pass_at_2": lambda i: 0.02}
    runs = read_runs([make_run(tmp_path / "a", **changes, **k)])
    (chart,) = charts_of(runs, [panel("Held-out accuracy by data set")])
    assert [t["name"] for t in chart.traces if "name" in t] == ["gsm8k", "svamp"] and len(chart.traces) == 4
    (chart,) = charts_of(runs, [panel("pass@k")])
    assert [label for label, *_ in chart.table] == ["pass@2", "pass@16"]
    (chart,) = charts_of(runs, [panel("pass@k by data set")])
    assert [label for label, *_ in chart.table] == [f"{n} pass@{k}" for n in ("gsm8k", "svamp") for k in (2, 4, 16)]
    assert len({(t["line"]["color"], t["line"]["dash"]) for t in chart.traces}) == 6
    both = [*runs, *read_runs([make_run(tmp_path / "b", **changes, **k)])]
    assert list(charts_of(both, [panel("pass@k by data set")])) == []
    (chart,) = charts_of(both, [panel("Held-out accuracy by data set")])
    assert len(chart.traces) == 4, "curves without bands, which would lie on each other"
    page = render(runs)
    assert "held-out accuracy, gsm8k" in page and "1.0% → 12.0%" in page


def test_parts_of_a_reward_function_have_a_curve_each(tmp_path: Path) -> None:
    parts = {f"reward__f__{name}": lambda i: 0.1 * i for name in ("right", "working", "failed")}
    (run,) = read_runs([make_run(tmp_path / "a", **parts)])
    (chart,) = charts_of([run], [panel("Parts of components")])
    assert [label for label, *_ in chart.table] == ["f/right", "f/working"]


def test_memory_is_shown_in_gib(tmp_path: Path) -> None:
    changes = {"memory__rss_bytes": lambda i: 2**29 * i, "memory__rss_peak_bytes": lambda i: 2**30 * i}
    (run,) = read_runs([make_run(tmp_path / "a", **changes)])
    (chart,) = charts_of([run], [panel("Main memory")])
    assert chart.table[0] == ("now", "0.50 GiB", "6.00 GiB", "") and chart.table[1][0] == "most so far"
    assert chart.traces[1]["y"] == list(range(1, 13)) and chart.layout["yaxis"]["ticksuffix"] == " GiB"


def test_a_logarithmic_axis_leaves_zero_out(tmp_path: Path) -> None:
    (run,) = read_runs([make_run(tmp_path / "a", 4, grad_norm__actor=lambda i: 0.0 if i == 2 else float(i))])
    (chart,) = charts_of([run], [panel("Gradient norms")])
    assert chart.traces[0]["x"] == [1, 3, 4]


def test_runs_of_different_length_are_overlaid_in_colours_of_their_own(tmp_path: Path) -> None:
    runs = read_runs([make_run(tmp_path / "a", 4), make_run(tmp_path / "b", 12)])
    (chart,) = charts_of(runs, [panel("Reward")])
    assert [len(trace["x"]) for trace in chart.traces] == [4, 12]
    assert len({trace["line"]["color"] for trace in chart.traces}) == 2
    assert [trace["name"] for trace in chart.traces] == ["a", "b"]
    stacked = list(charts_of(runs, [panel("Where the time goes")]))
    assert [c.layout["title"]["text"] for c in stacked] == ["Where the time goes: a", "Where the time goes: b"]
    assert [t["stackgroup"] for t in stacked[0].traces] == ["one", "one"]


def test_what_never_happened_is_not_drawn_beside_others(tmp_path: Path) -> None:
    (run,) = read_runs([make_run(tmp_path / "a")])
    (chart,) = charts_of([run], [panel("Verdicts")])
    assert len(chart.traces) == 1


def test_findings_are_those_of_all_rows_up_to_each_step(tmp_path: Path) -> None:
    from rlvr.tracking.diagnosis import diagnose

    sick = {"response__truncated": lambda i: 0.99 if i % 17 < 5 else 0.0, "policy__entropy_avg": lambda i: 1 / i}
    (run,) = read_runs([make_run(tmp_path / "a", 80, **sick, objective__kl=lambda i: math.nan if i > 60 else 0.1)])
    rows = run.rows[1:]
    slow = [{finding.name: finding for finding in diagnose(rows[: i + 1])} for i in range(len(rows))]
    want = {name: [i for i, found in enumerate(slow) if name in found] for found in slow for name in found}
    assert len(want) > 1 and {finding.name for _, finding in run.findings} == set(want)
    for steps, finding in run.findings:
        places = want[finding.name]
        assert finding == slow[places[-1]][finding.name]
        parts = [part.split(" to ") for part in steps.removeprefix("steps ").removeprefix("step ").split(", ")]
        assert [step for ends in parts for step in range(int(ends[0]), int(ends[-1]) + 1)] == [i + 1 for i in places]


def test_findings_name_their_steps(tmp_path: Path) -> None:
    (run,) = read_runs(
        [make_run(tmp_path / "a", response__truncated=lambda i: 0.99 if i in (1, 2, 3, 4, 8, 9, 10) else 0.0)]
    )
    ((steps, finding),) = run.findings
    assert finding.name == "responses are cut" and steps == "steps 1 to 4, 10"  # from the start it is told at once


def test_a_journal_is_told_of(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    assert "rlvr replay" not in render(read_runs([folder]))
    for name in ("step-000003", "step-000012", "step-x"):
        (tmp_path / "a" / "journal" / name).mkdir(parents=True)
        (tmp_path / "a" / "journal" / name / "step.json").write_text("{}")
    page = render(read_runs([folder]))
    assert "steps 3 to 12 are in its journal" in page and f"rlvr replay {tmp_path / 'a'} --step 12" in page


def test_settings_that_differ_are_listed(tmp_path: Path) -> None:
    runs = read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b")])
    assert differing_settings(runs) == []
    runs[1].settings["train"] = {"lr": 0.2, "new": 1}
    assert differing_settings(runs) == [("train.lr", ["0.1", "0.2"]), ("train.new", ["null", "1"])]


def test_hostile_text_stays_text_and_the_page_is_whole(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a")
    (folder / "metrics.jsonl").write_text(
        json.dumps({"step": 1, f"reward/{EVIL}": 1.0, "objective/scores": 1.0}) + "\n"
    )
    page = render(read_runs([folder]))
    assert EVIL not in page and "<img src=x" not in page and "&lt;img src=x" in page
    body = page[: page.index("<script>")]
    assert not re.search(r"""(?:src|href)=["'](?:https?:)?//""", body) and "@import" not in body


def test_parts_of_a_response() -> None:
    text = "a<think>b</think>c<answer>d</answer>e<think>f"
    parts = parts_of(text)
    assert [p.kind for p in parts] == ["other", "think", "other", "answer", "other", "think"]
    assert "".join(p.text for p in parts) == text


@pytest.mark.parametrize(
    ("files", "note"),
    [
        ({"metrics.jsonl": ""}, "no metrics yet"),
        ({"metrics.jsonl": '{"step": 1, "objective/scores": 1}\n{"step": 2, "obj'}, "1 line(s) can't be read"),
        ({"metrics.jsonl": '{"step": 1}\n', "config.yaml": "a: [b"}, "config.yaml can't be read"),
        ({"metrics.jsonl": '[1]\n{"step": "x"}\n"text"\n'}, "can't be read"),
        ({"metrics.jsonl": '{"step": 1, "new/metric": {"a": 1}, "list": [1]}\n'}, "environment.json is missing"),
        ({"metrics.jsonl": '{"step": 1, "of/old": 1}\n', "config.yaml": "nothing"}, "config.yaml can't be read"),
        ({"metrics.jsonl": '{"step": 1}\n', "config.yaml": "a: 2001-99-99"}, "config.yaml can't be read"),
        ({"metrics.jsonl": '{"step": NaN, "objective/scores": 1}\n{"step": Infinity}\n'}, "2 line(s) can't be read"),
        (
            {"metrics.jsonl": '{"step": 1, "objective/scores": Infinity, "objective/kl": -Infinity}\n'},
            "NaN or infinite",
        ),
        ({"metrics.jsonl": '{"step": 1, "objective/scores": 1%s}\n' % ("0" * 400)}, "NaN or infinite"),
        ({"metrics.jsonl": "[" * 100_000 + "\n"}, "1 line(s) can't be read"),
        ({"metrics.jsonl": '{"step": 1, "objective/scores": 1%s}\n' % ("0" * 9000)}, "NaN or infinite"),
        ({"metrics.jsonl": "\x00\x01\n"}, "can't be read"),
    ],
)
def test_half_written_and_foreign_folders_are_shown_with_a_note(files, note, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (run,) = read_runs([tmp_path])
    assert any(note in said for said in run.notes)
    assert note.partition("(")[0] in render([run]).replace("&#39;", "'")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none"], "no folder"),
        (["empty"], "metrics.jsonl is missing (it holds nothing)"),
        (["a", "a"], "named twice"),
        (["a", "--output", "no/where.html"], "--output no/where.html"),
        (["a", "--serve", "--output", "x"], "give one of them"),
        ([], "there is no folder runs"),
    ],
)
def test_mistakes(words, said, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert main(["report", *words]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("error:") == 1


def test_the_newest_run_is_meant_where_none_is_named_and_all_are_listed(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("b", "a", "c")):
        os.utime(make_run(tmp_path / "runs" / name, 3) / "metrics.jsonl", (number, number))
    for name, pid in (("a", os.getpid()), ("b", 2**22 + 1)):
        (tmp_path / "runs" / name / ".holder.json").write_text(json.dumps({"host": socket.gethostname(), "pid": pid}))
    (tmp_path / "runs" / "c" / "actor" / "modeling").mkdir(parents=True)
    assert main(["report"]) == 0
    assert (tmp_path / "runs" / "c" / "report.html").is_file()
    capsys.readouterr()
    assert main(["runs"]) == 0
    out = capsys.readouterr().out
    states = {"b": "killed", "a": "going on", "c": "finished"}
    rows = [line for line in out.splitlines() if "runs/" in line]
    assert [row.split("│")[1].strip() for row in rows] == [f"runs/{name}" for name in states]
    assert all(state in row and "75.0%" in row for row, state in zip(rows, states.values(), strict=True))
    (tmp_path / "empty").mkdir()
    assert main(["runs", "empty"]) == 2 and "the folder empty holds no run" in capsys.readouterr().err


def test_names_tell_runs_apart(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / x / "run", 2) for x in ("one", "two")]
    assert [run.name for run in read_runs(folders)] == ["one/run", "two/run"]


def test_it_is_written_and_served(tmp_path: Path, capsys, monkeypatch) -> None:
    folder = make_run(tmp_path / "a")
    assert main(["report", str(folder)]) == 0
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    server = make_server([str(folder)], 0)
    port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/").read().decode()
        assert "renew every" in page and "Held-out accuracy" in page
        assert urllib.request.urlopen(f"http://127.0.0.1:{port}/alive").status == 204
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/../etc/passwd")
        assert main(["report", str(folder), "--serve", "--port", str(port)]) == 2
        assert f"--port {port}" in capsys.readouterr().err
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_without_plotly_it_says_how_to_get_it(tmp_path: Path, monkeypatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(UserError, match=r"rlvr\[report\]"):
        render(read_runs([make_run(tmp_path / "a")]))


def test_a_page_of_elsewhere_can_not_read_what_is_served(tmp_path: Path) -> None:
    """Its name may be made to lead here; the browser then sends that name as the host."""
    server = make_server([str(make_run(tmp_path / "a"))], 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        for host, status in (("127.0.0.1:1", 204), ("localhost:1", 204), ("evil.example:1", 403), ("", 403)):
            asked = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
            asked.request("GET", "/alive", headers={"Host": host})
            assert asked.getresponse().status == status, host
            asked.close()
    finally:
        server.shutdown()
        server.server_close()


def test_numbers_and_settings_that_nobody_of_ours_wrote(tmp_path: Path) -> None:
    """Numbers of 400 digits, dates, bytes, sets, and keys that are no text."""
    huge = "1" + "0" * 400
    (tmp_path / "metrics.jsonl").write_text(
        f'{{"step": 1, "objective/scores": {huge}}}\n{{"step": 2, "objective/scores": 0.5}}\n{{"step": {huge}}}\n'
    )
    (tmp_path / "samples.jsonl").write_text(f'{{"step": 1, "score": {huge}}}\n{{"step": {huge}}}\n{{"step": [1]}}\n')
    (tmp_path / "config.yaml").write_text(
        "train: {lr: 2024-01-01, 2024-01-02: 1}\nalgo: {a: !!binary aGVsbG8=, b: !!set {x}, null: 5}\n"
    )
    (tmp_path / "environment.json").write_text(f'{{"python": {huge}}}')
    page = render(read_runs([tmp_path]))
    assert "2024-01-01" in page and "objective/scores" in page
