"""`Run`: a run's folder, read for the report and the model card: whatever is there, and notes on what is missing or damaged.

A run that is killed, or still going on, leaves files that are cut short; they are read as far as they go.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rlvr.config.files import parse_yaml
from rlvr.errors import UserError
from rlvr.tracking.diagnosis import Finding, History

MAIN_FIGURES = (
    ("eval/accuracy", "held-out accuracy", "{:.1%}"),
    ("outcome/correct", "right in training", "{:.1%}"),
    ("objective/scores", "reward", "{:.3g}"),
    ("train/loss", "loss", "{:.4g}"),
    ("eval/loss", "held-out loss", "{:.4g}"),
    ("objective/kl", "KL", "{:.3g}"),
    ("response/length_tokens", "tokens a response", "{:.0f}"),
)
"""Metrics of the summary and the card: name, label, format."""

Row = dict[str, float]


@dataclass
class Run:
    """A run as its folder tells it.

    Attributes:
        name: in the report; no other run has it.
        folder: where it lies.
        rows: metrics by step, NaN and null as NaN.
        samples: responses that were written while it ran.
        settings: the tree of settings; empty if the file is missing.
        environment: versions and machine; empty likewise.
        notes: what is missing or damaged.
    """

    name: str
    folder: Path
    rows: list[Row]
    samples: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def series(self, metric: str) -> tuple[list[float], list[float]]:
        """Steps and values, where there are any; values that are not finite are left out."""
        pairs = [(row["step"], row[metric]) for row in self.rows if metric in row and math.isfinite(row[metric])]
        return [step for step, _ in pairs], [value for _, value in pairs]

    def last(self, metric: str) -> float | None:
        """The newest value; None if there is none."""
        values = self.series(metric)[1]
        return values[-1] if values else None

    @cached_property
    def metrics(self) -> list[str]:
        """Every metric that the run has, sorted."""
        return sorted(set().union(*self.rows) - {"step"})

    @cached_property
    def journal(self) -> list[int]:
        """The steps that `rlvr replay` knows."""
        names = (path.parent.name for path in self.folder.glob("journal/step-*/step.json"))
        return sorted(int(name[5:]) for name in names if name[5:].isdecimal())

    @property
    def findings(self) -> list[tuple[str, Finding]]:
        """Signs of something going wrong: at which steps, and the finding at the last of them; those of most steps first."""
        seen: dict[str, list[int]] = {}
        newest: dict[str, Finding] = {}
        episodes = [row for row in self.rows if "objective/scores" in row]
        history = History()
        for place, row in enumerate(episodes):
            for finding in history.add(row):
                seen.setdefault(finding.name, []).append(place)
                newest[finding.name] = finding
        steps = [int(row["step"]) for row in episodes]
        ordered = sorted(seen, key=lambda name: -len(seen[name]))
        return [(_stretches(seen[name], steps), newest[name]) for name in ordered]


def _stretches(places: Sequence[int], steps: Sequence[int]) -> str:
    """`step 3 to 7, 9`: places that follow each other as one stretch."""
    ends: list[list[int]] = []
    for place in places:
        if ends and place == ends[-1][1] + 1:
            ends[-1][1] = place
        else:
            ends.append([place, place])
    said = [f"{steps[a]} to {steps[b]}" if a < b else str(steps[a]) for a, b in ends]
    return ("step " if len(places) == 1 else "steps ") + ", ".join(said)


def read_runs(folders: Sequence[str | Path]) -> list[Run]:
    """Read the runs in these folders, under names that tell them apart.

    Raises:
        UserError: a folder that is none, or holds no run.
    """
    paths = [Path(folder) for folder in folders]
    return [_read(path, name) for path, name in zip(paths, _names(paths), strict=True)]


def _names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, and as many before it as it takes to tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(p[-count:]) for p in parts]
        if len(set(names)) == len(names):
            return names
    raise UserError(f"a run is named twice: {', '.join(map(str, paths))}; name each once")


def _read(folder: Path, name: str) -> Run:
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: give the folders of runs (--save_path of training)")
    path = folder / "metrics.jsonl"
    if not path.is_file():
        held = ", ".join(sorted(p.name for p in folder.iterdir())[:5]) or "nothing"
        raise UserError(f"{folder} holds no run: metrics.jsonl is missing (it holds {held}); give a run's --save_path")
    lines, cut = _json_lines(path)
    numbers = [_numbers(line) for line in lines]
    run = Run(name, folder, [row for row in numbers if math.isfinite(row.get("step", math.nan))])
    cut += len(numbers) - len(run.rows)
    if cut:
        run.notes.append(f"metrics.jsonl: {cut} line(s) can't be read, as a kill or a run going on leaves them")
    if not run.rows:
        run.notes.append("there are no metrics yet")
    run.samples, cut = _json_lines(folder / "samples.jsonl")
    run.settings = _settings(folder / "config.yaml", run.notes)
    run.environment = _environment(folder / "environment.json", run.notes)
    odd = sorted({n for row in run.rows for n, value in row.items() if not math.isfinite(value)})
    if odd:
        run.notes.append(f"NaN or infinite at some steps, left out of the curves: {', '.join(odd[:6])}")
    return run


def _json_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The objects of a JSONL file, and how many lines are none."""
    found, bad = [], 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            value = json.loads(line, parse_int=_whole_number)
        except (ValueError, RecursionError):  # no JSON, a number of too many digits, or nested too deeply
            value = None
        if isinstance(value, dict):
            found.append(value)
        elif line.strip():
            bad += 1
    return found, bad


def _whole_number(digits: str) -> int | float:
    """Beyond what 64 bits hold, a float: infinite in the end, where what adds up and formats integers would raise."""
    return int(digits) if len(digits) < 19 else float(digits)


def _numbers(line: dict[str, Any]) -> Row:
    known = {name: math.nan if value is None else value for name, value in line.items()}
    return {name: float(value) for name, value in known.items() if isinstance(value, int | float)}


def _settings(path: Path, notes: list[str]) -> dict[str, Any]:
    if not path.is_file():
        notes.append("config.yaml is missing: settings are not shown")
        return {}
    try:
        tree = parse_yaml(path.read_text(encoding="utf-8", errors="replace"))
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        notes.append("config.yaml can't be read: settings are not shown")
        return {}
    return {str(section): _plain(values) for section, values in tree.items() if isinstance(values, dict)}


def _plain(value: Any) -> Any:
    """A value of YAML as JSON has it: dates, bytes and sets of a file that is not ours become text."""
    if isinstance(value, dict):
        return {str(name): _plain(held) for name, held in value.items()}
    if isinstance(value, list):
        return [_plain(held) for held in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _environment(path: Path, notes: list[str]) -> dict[str, Any]:
    lines, _ = _json_lines(path)
    if not lines:
        notes.append("environment.json is missing: versions are not shown")
    return lines[0] if lines else {}
