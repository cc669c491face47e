"""The benchmark of the presets: its statistics, what it reads of runs, and which runs it takes for finished."""

import json
import math
from pathlib import Path

import pytest
import yaml

from benchmarks.presets import Curve, check_settings, flags, folder_of, is_finished, read_all, t_interval, table
from rlvr.config import parse, to_dict


def a_run(out: Path, name: str, seed: int, accuracy: list[float], finished: bool = True) -> Path:
    """The folder of a run that measured so, every other episode of 100 responses and 5 seconds."""
    folder = folder_of(out, name, seed)
    folder.mkdir(parents=True)
    rows = [{"step": 0, "eval/accuracy": accuracy[0] / 100}]
    for number, value in enumerate(accuracy[1:], start=1):
        rows.append({"step": 2 * number - 1, "episode": 200 * number - 100, "time/total": 10.0 * number - 5})
        rows.append(
            {"step": 2 * number, "episode": 200 * number, "time/total": 10.0 * number, "eval/accuracy": value / 100}
        )
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "config.yaml").write_text(yaml.safe_dump(to_dict(parse(flags(name, seed, 4)))))
    if finished:
        (folder / "actor" / "modeling").mkdir(parents=True)
    return folder


def test_the_interval_is_students() -> None:
    """2, 4, 6: s = 2, t(2) = 4.303."""
    mean, half = t_interval([2.0, 4.0, 6.0])
    assert mean == 4.0 and half == pytest.approx(4.303 * 2 / math.sqrt(3))
    assert t_interval([5.0]) == (5.0, math.inf)
    with pytest.raises(ValueError, match="not 0"):
        t_interval([])


def test_the_target_is_reached_between_two_measurements() -> None:
    curve = Curve(accuracy=[20.0, 80.0, 100.0, 70.0], responses=[0, 200, 400, 600], seconds=[0.0, 10.0, 30.0, 40.0])
    assert curve.reached(90, curve.responses) == 300 and curve.reached(90, curve.seconds) == 20
    assert curve.reached(80, curve.responses) == 200 and curve.reached(10, curve.responses) == 0
    assert curve.reached(100.5, curve.responses) is None


def test_the_table_has_means_intervals_and_how_many_reached_the_target(tmp_path: Path) -> None:
    a_run(tmp_path, "grpo", 0, [20, 80, 100])
    a_run(tmp_path, "grpo", 1, [20, 60, 80])
    a_run(tmp_path, "ppo", 0, [20, 40, 60])
    a_run(tmp_path, "ppo", 1, [20, 40], finished=False)
    runs = [("ppo", 0), ("grpo", 0), ("ppo", 1), ("grpo", 1)]
    lines = table(read_all(runs, tmp_path), 90).splitlines()
    assert lines[2] == "| `ppo` | 60.0 % | never | never | 400 | 20 | 1 |"
    half = 12.706 * math.sqrt(200) / math.sqrt(2)
    assert lines[3] == f"| `grpo` | 90.0 ± {half:.1f} % | 300 (1 of 2) | 15 (1 of 2) | 400 | 20 | 2 |"


def test_a_run_of_other_settings_is_refused_and_one_of_the_same_goes_on(tmp_path: Path) -> None:
    folder = a_run(tmp_path, "grpo", 3, [20, 30], finished=False)
    check_settings("grpo", 3, 4, folder)
    assert not is_finished(folder)
    with pytest.raises(SystemExit, match="was made with num_episodes 4, and now it is 5"):
        check_settings("grpo", 3, 5, folder)
    with pytest.raises(SystemExit, match="was made with preset grpo"):
        check_settings("dapo", 3, 4, folder)
