"""The report: what it reads, what it draws, what it must not let through; and the page in a real browser, if there is one."""

import json
import math
import re
import shutil
import subprocess
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from rlvr.cli import main
from rlvr.errors import UserError
from rlvr.report.charts import TOPICS, charts_of
from rlvr.report.page import differing_settings, render
from rlvr.report.runs import read_runs
from rlvr.report.samples import parts_of
from rlvr.tools.report import make_server

EVIL = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>"


def make_run(folder: Path, episodes: int = 12, **metrics) -> Path:
    """A run's folder, as training leaves it. `metrics`: functions of the episode, `/` spelled `__`."""
    folder.mkdir(parents=True)
    rows = []
    for step in range(episodes + 1):
        row = {"step": step, "episode": 8 * step}
        if step:
            share = min(0.9, 0.3 + 0.05 * step)
            row |= {"objective/scores": share, "objective/scores_std": 0.4, "outcome/correct": share, "reward/f": share}
            row |= {"time/rollout": 1.0, "time/update": 2.0, "time/total": 3.0 * step, "grad_norm/actor": 1.0}
            row |= {"outcome/wrong": 1 - share, "outcome/timed_out": 0.0}
            row |= {name.replace("__", "/"): value(step) for name, value in metrics.items()}
        if step in (0, episodes):
            row |= {"eval/accuracy": 0.25 if step == 0 else 0.75, "eval/problems": 100}
        rows.append({name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sample = {
        "step": 1,
        "prompt": f"2+2? {EVIL}",
        "response": f"<think>{EVIL}</think><answer>4</answer>",
        "gold": "4",
        "score": 1.0,
    }
    (folder / "samples.jsonl").write_text(json.dumps(sample | {"verdict": "correct"}) + "\n")
    (folder / "config.yaml").write_text(yaml.safe_dump({"train": {"lr": 0.1}, "ckpt": {"save_path": str(folder)}}))
    (folder / "environment.json").write_text('{"torch": "2.13.0", "command": "rlvr train"}\n')
    return folder


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
    from rlvr.evaluation.statistics import wilson_interval

    (run,) = read_runs([make_run(tmp_path / "a")])
    (chart,) = charts_of([run], [panel("Held-out accuracy")])
    low, high, line = chart.traces
    assert line["y"] == [0.25, 0.75]
    assert [low["y"][1], high["y"][1]] == list(wilson_interval(75, 100))


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


def test_findings_name_their_steps(tmp_path: Path) -> None:
    (run,) = read_runs(
        [make_run(tmp_path / "a", response__truncated=lambda i: 0.99 if i in (1, 2, 3, 4, 8, 9, 10) else 0.0)]
    )
    ((steps, finding),) = run.findings
    assert finding.name == "everything truncated" and steps == "steps 3 to 4, 10"


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
        ([], "RUN"),
    ],
)
def test_mistakes(words, said, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert main(["report", *words]) == 2
    told = capsys.readouterr().err
    assert said in told and told.count("error:") == 1


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
        assert 'http-equiv="refresh"' in page and "Held-out accuracy" in page
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


def test_a_browser_draws_every_chart_and_runs_nothing_hostile(tmp_path: Path) -> None:
    browser = next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    if browser is None:
        pytest.skip("no Chromium on this machine")
    page = tmp_path / "page.html"
    runs = read_runs([make_run(tmp_path / "a"), make_run(tmp_path / "b", 5)])
    page.write_text(render(runs))
    flags = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=8000",
    ]
    done = subprocess.run([browser, *flags, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120)
    charts = page.read_text().count('class="plot"')
    assert charts > 5 and done.stdout.count('class="main-svg"') >= charts
    assert "<title>a, b - rlvr report</title>" in done.stdout
