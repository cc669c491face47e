"""What a study reads of runs, and the figures of its table, against counts by hand."""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rlvr.config import to_dict
from rlvr.errors import UserError
from rlvr.study import carry_out as module
from rlvr.study.carry_out import carry_out, check_folder
from rlvr.study.figure import draw, ticks
from rlvr.study.plan import Run, Study
from rlvr.study.results import Curve, groups, read_results, table, write_results

SETTINGS = {"reward_functions": ["gsm8k_reward_fn"], "num_episodes": 4}


def a_study(out: Path, **changes: object) -> Study:
    grid = {"preset": ["ppo", "grpo"]}
    return Study(**{"out": str(out), "seeds": [0, 1], "settings": SETTINGS, "grid": grid, "targets": [0.9], **changes})


def write_run(run: Run, accuracy: list[float], finished: bool = True) -> None:
    """The folder of a run that measured so, every other episode of 100 responses and 5 seconds."""
    run.folder.mkdir(parents=True)
    rows = [{"step": 0, "eval/accuracy": accuracy[0]}]
    for number, value in enumerate(accuracy[1:], start=1):
        at = {"episode": 200 * number, "time/total": 10.0 * number}
        rows.append({"step": 2 * number - 1, "critic/explained_variance": number / 10})
        rows.append({"step": 2 * number, **at, "eval/accuracy": value})
    (run.folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (run.folder / "config.yaml").write_text(yaml.safe_dump(to_dict(run.config())))
    (run.folder / "environment.json").write_text(json.dumps({"torch": "2.13.0", "command": "secret path"}))
    if finished:
        (run.folder / "actor" / "modeling").mkdir(parents=True)


def test_the_target_is_reached_between_two_measurements() -> None:
    curve = Curve({}, 0, [0.2, 0.8, 1.0, 0.7], responses=[0, 200, 400, 600], seconds=[0.0, 10.0, 30.0, 40.0])
    assert curve.reached(0.9, curve.responses) == pytest.approx(300)
    assert curve.reached(0.9, curve.seconds) == pytest.approx(20)
    assert curve.reached(0.8, curve.responses) == 200 and curve.reached(0.1, curve.responses) == 0
    assert curve.reached(1.005, curve.responses) is None


def test_the_table_has_ends_differences_and_how_many_reached_the_target(tmp_path: Path) -> None:
    study = a_study(tmp_path, baseline={"preset": "ppo"}, also={"critic/explained_variance": (1, 3)})
    ends = {("ppo", 0): [0.2, 0.4, 0.6], ("grpo", 0): [0.2, 0.8, 1.0], ("grpo", 1): [0.2, 0.6, 0.8]}
    for run in study.runs:
        if (run.cell["preset"], run.seed) in ends:
            write_run(run, ends[run.cell["preset"], run.seed])
        else:
            write_run(run, [0.2, 0.4], finished=False)
    heads, _, ppo, grpo = table(study, read_results(study)).splitlines()
    assert heads == (
        "| preset | eval/accuracy at the end | difference from ppo after as many responses | responses to 90 % | seconds to 90 % | "
        "critic/explained_variance, episodes 1 to 3 | responses | seconds | runs |"
    )
    assert ppo == "| `ppo` | 60.0 % |  | never | never | 0.15 | 400 | 20 | 1 |"
    # Resampled pairs of (100, 80): 80, 90 or 100. One of grpo's runs has a run of ppo beside it.
    assert grpo == (
        "| `grpo` | 90.0 (80.0 to 100.0) % | +40.0 | 300, 1 of 2 | 15, 1 of 2 | 0.15 (0.15 to 0.15) | 400 | 20 | 2 |"
    )


def test_differences_are_taken_seed_by_seed_and_have_students_interval() -> None:
    study = a_study(Path("nowhere"), baseline={"preset": "ppo"}, seeds=[0, 1, 2])
    ends = {"ppo": [0.50, 0.60, 0.90], "grpo": [0.52, 0.64, 0.96]}
    curves = [
        Curve({"preset": name}, seed, [0.0, value], [0, 10], [0.0, 1.0])
        for name, values in ends.items()
        for seed, value in enumerate(values)
    ]
    # 2, 4, 6: s = 2, t(2) = 4.303.
    assert f"+4.0 ± {4.303 * 2 / 3**0.5:.1f}" in table(study, curves).splitlines()[3]


def test_rows_across_an_axis_are_strata(tmp_path: Path) -> None:
    tasks = {"easy": {}, "hard": {"num_episodes": 5}}
    study = a_study(
        tmp_path, grid={"task": tasks, "preset": ["ppo", "grpo"]}, across=["task"], baseline={"preset": "ppo"}
    )
    better = {"ppo": 0.0, "grpo": 0.1}
    worth = {"easy": 0.9, "hard": 0.3}
    curves = [
        Curve(run.cell, run.seed, [0.0, worth[run.cell["task"]] + better[run.cell["preset"]]], [0, 10], [0.0, 1.0])
        for run in study.runs
    ]
    rows = groups(study, curves)
    assert [row.names for row in rows[4:]] == [("all", "ppo"), ("all", "grpo")]
    assert [len(stratum) for stratum in rows[4].strata] == [2, 2]
    # Within a task all runs are alike, so that resampling within tasks leaves no doubt; resampling all would.
    assert table(study, curves).splitlines()[-1].startswith("| `all` | `grpo` | 70.0 (70.0 to 70.0) % | +10.0 ± 0.0 |")


def test_results_are_kept_and_stand_in_for_runs_that_are_gone(tmp_path: Path) -> None:
    study, kept = a_study(tmp_path / "runs"), tmp_path / "results" / "kept.json"
    for run in study.runs:
        write_run(run, [0.2, 0.5 + 0.1 * run.seed])
    curves = read_results(study)
    write_results(kept, study, curves)
    assert not any(word in kept.read_text() for word in ("secret", str(tmp_path)))
    assert "secret" not in kept.read_text() and json.loads(kept.read_text())["environment"] == {"torch": "2.13.0"}
    assert kept.with_suffix(".md").read_text() == table(study, curves) + "\n\n; torch 2.13.0.\n"
    gone = replace(study, out=str(tmp_path / "elsewhere"))
    assert table(gone, read_results(gone, kept)) == table(study, curves)
    write_results(kept, gone, read_results(gone, kept))
    assert len(json.loads(kept.read_text())["runs"]) == 4 and "2.13.0" in kept.read_text()
    write_run(replace(gone, seeds=[1]).runs[0], [0.2, 0.9])  # what is there wins
    assert [curve.values[-1] for curve in read_results(gone, kept)] == [0.5, 0.5, 0.9, 0.6]
    for text in ("{}", "nothing", '{"runs": [{"what": 1}]}'):
        kept.write_text(text)
        with pytest.raises(UserError, match="no results of a study"):
            read_results(study, kept)
    with pytest.raises(UserError, match="no finished run"):
        read_results(a_study(tmp_path / "empty"))


def test_a_metric_that_was_never_measured_is_named(tmp_path: Path) -> None:
    study = a_study(tmp_path, metric="eval/pass_at_8")
    write_run(study.runs[0], [0.2, 0.3])
    with pytest.raises(UserError, match="no metric 'eval/pass_at_8'; of evaluations it has eval/accuracy"):
        read_results(study)


def test_a_run_of_other_settings_is_refused_and_one_of_the_same_goes_on(tmp_path: Path) -> None:
    run = a_study(tmp_path).runs[1]
    write_run(run, [0.2, 0.3], finished=False)
    check_folder(run)
    check_folder(replace(run, settings={**run.settings, "num_threads": 2}))
    assert not run.is_finished
    told: list[str] = []
    for change, said in (
        ({"num_episodes": 5}, "num_episodes 4, and now it is 5"),
        ({"preset": "dapo"}, "preset 'grpo'"),
    ):
        other = replace(run, settings={**run.settings, **change})
        with pytest.raises(UserError, match=said):
            carry_out([other], 1, told.append)
    assert not told


def test_sigterm_stops_the_runs_once_and_begins_no_other(tmp_path: Path, monkeypatch) -> None:
    """Stand-ins for training: they sleep, and say by which signals they were told to stop."""
    code = (
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'told to stop\\n'), time.sleep(0.5), sys.exit(143)))\n"
        "os.write(1, b'training\\n')\ntime.sleep(120)"
    )
    monkeypatch.setattr(module, "command_of", lambda run, threads: [sys.executable, "-c", code])
    study, before = a_study(tmp_path), signal.getsignal(signal.SIGTERM)

    def stop_when_two_train() -> None:
        while (
            sum(
                (run.folder / "log.txt").is_file() and "training" in (run.folder / "log.txt").read_text()
                for run in study.runs
            )
            < 2
        ):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop_when_two_train).start()
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        carry_out(study.runs, 2, told.append)
    logs = [(run.folder / "log.txt").read_text() for run in study.runs if (run.folder / "log.txt").is_file()]
    assert logs == ["training\ntold to stop\n"] * 2 and told == ["0 of 4 runs are finished, 4 to do, 2 at a time"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_runs_of_other_lengths_are_compared_after_as_many_responses() -> None:
    study = a_study(Path("nowhere"), baseline={"preset": "ppo"}, after=[50, 300])
    long = Curve({"preset": "grpo"}, 0, [0.0, 0.4, 0.9], [0, 200, 400], [0, 1, 2])
    short = Curve({"preset": "ppo"}, 0, [0.0, 0.1], [0, 100], [0, 1])
    heads, _, ppo, grpo = table(study, [long, short]).splitlines()
    assert "| after 50 responses | after 300 responses | difference" in heads
    assert ppo.startswith("| `ppo` | 10.0 % | 5.0 % |  |  |")
    assert grpo.startswith("| `grpo` | 90.0 % | 10.0 % | 65.0 % | +10.0 |")


def test_runs_of_which_no_seconds_are_known() -> None:
    study = a_study(Path("nowhere"))
    curves = [Curve(cell, 0, [0.1, 0.9], [0, 100], []) for cell in study.cells]
    heads, _, row, _ = table(study, curves).splitlines()
    assert "seconds" not in heads and row == "| `ppo` | 90.0 % | 100 | 100 | 1 |"


def test_the_axis_of_responses_has_no_labels_where_they_would_overlap() -> None:
    """A first look after 5,120 responses once had 0, 1,000 and 2,000 written into each other."""
    assert ticks(5120, 22_000) == [0, 5000, 10_000, 20_000]
    assert ticks(256, 5120) == [0, 200, 500, 1000, 2000, 5000]


def test_the_figure_is_drawn(tmp_path: Path) -> None:
    study = a_study(tmp_path / "runs")
    for run in study.runs:
        write_run(run, [0.2, 0.5 + 0.1 * run.seed, 0.9])
    draw(study, read_results(study), tmp_path / "docs" / "drawn.svg")
    text = (tmp_path / "docs" / "drawn.svg").read_text()
    assert "<svg" in text and text.count("<path") > 20


def test_runs_belong_to_no_process_group_of_the_study(tmp_path: Path, monkeypatch) -> None:
    code = "import os, sys; sys.exit(bool({'RANK', 'MASTER_PORT'} & set(os.environ)))"
    monkeypatch.setattr(module, "command_of", lambda run, threads: [sys.executable, "-c", code])
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("MASTER_PORT", "1")
    told: list[str] = []
    carry_out(a_study(tmp_path).runs[:1], 1, told.append)
    assert told[-1].startswith("ppo seed 0: done")
