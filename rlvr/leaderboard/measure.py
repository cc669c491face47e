"""Counting: every grader on every case, in turns, so that whatever else the machine does meets all of them."""

import importlib.util
import json
import os
import platform
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rewards import names
from rlvr.errors import UserError, did_you_mean, listed
from rlvr.leaderboard.cases import Case, CaseSet
from rlvr.leaderboard.graders import GRADERS, Named
from rlvr.leaderboard.process import GraderProcess, Verdict

TURN = 32
"""Cases that a grader takes before the next has its turn."""
MISTAKES_KEPT = 200
PACKAGES = ("rlvr", "math-verify", "latex2sympy2_extended", "sympy", "mpmath")


@dataclass
class Cell:
    """One grader on one set.

    Attributes:
        positives, negatives: cases whose answer is right, or wrong.
        false_positives, false_negatives: cases where it said otherwise. A right answer on which it hung or failed is a
            false negative; a wrong one is none of them, and is counted as what it is.
        hangs, exceptions: cases without a verdict.
        seconds: for all cases, hangs left out; `slowest_s` is the longest.
        groups: attack -> how many of its cases it got wrong, and of how many.
        mistakes: the first of them, by the name of the case.
        messages: what it raised first.
    """

    grader: str
    dataset: str
    rows: int = 0
    positives: int = 0
    negatives: int = 0
    false_positives: int = 0
    false_negatives: int = 0
    hangs: int = 0
    exceptions: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    groups: dict[str, list[int]] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def items_per_s(self) -> float:
        """Verdicts in a second of its own time."""
        return (self.rows - self.hangs) / self.seconds if self.seconds else 0.0

    def add(self, case: Case, verdict: Verdict) -> None:
        """Count a verdict."""
        self.rows += 1
        self.hangs += verdict.fault == "hang"
        self.exceptions += verdict.fault == "exception"
        if verdict.fault != "hang":
            self.seconds += verdict.seconds
        self.slowest_s = max(self.slowest_s, verdict.seconds)
        if verdict.fault and len(self.messages) < 3:
            self.messages.append(f"{case.name}: {verdict.message}")
        if case.label is None:
            return
        self.positives += case.label
        self.negatives += not case.label
        wrong = verdict.correct != case.label
        self.false_positives += wrong and not case.label
        self.false_negatives += wrong and case.label
        if case.group:
            counts = self.groups.setdefault(case.group, [0, 0])
            counts[0] += wrong
            counts[1] += 1
        if wrong and len(self.mistakes) < MISTAKES_KEPT:
            self.mistakes.append(case.name)


@dataclass
class Board:
    """A run.

    Attributes:
        facts: machine and versions.
        graders: name -> what it is.
        skipped: name -> why, and what to do about it.
        cells: one for each grader and set.
        memory_bytes: the most that each grader's processes held.
        left_behind: files that texts had a grader write.
    """

    facts: dict[str, str]
    graders: dict[str, str]
    skipped: dict[str, str]
    cells: list[Cell] = field(default_factory=list)
    memory_bytes: dict[str, int] = field(default_factory=dict)
    left_behind: dict[str, list[str]] = field(default_factory=dict)

    def of(self, grader: str) -> list[Cell]:
        """The cells of a grader."""
        return [cell for cell in self.cells if cell.grader == grader]

    def to_json(self) -> str:
        """The figures, a line for each cell."""
        values = asdict(self)
        cells = ",\n".join(json.dumps(cell) for cell in values.pop("cells"))
        return json.dumps(values, indent=1)[:-2] + f',\n "cells": [\n{cells}\n]}}\n'


@dataclass(frozen=True)
class Entry:
    """A grader that takes part.

    Attributes:
        commands: that run it; the first that works does.
        may_be_absent: the others go on without it if none does.
    """

    name: str
    text: str
    commands: tuple[tuple[str, ...], ...]
    may_be_absent: bool = False


def find_graders(asked: Sequence[str], pythons: Sequence[str]) -> tuple[list[Entry], dict[str, str]]:
    """The graders that can run, and why the others can't.

    Args:
        asked: names of `GRADERS`, reward functions (`rewards.resolve`), or NAME=COMMAND.
        pythons: other interpreters, asked in order for packages that this one has not.

    Raises:
        UserError: an unknown name, a name twice, or an interpreter that is not there.
    """
    for place in pythons:
        if not Path(place).is_file():
            raise UserError(
                f"--pythons {place}: there is no such file; give the path of a Python, such as .peers/bin/python"
            )
    entries: list[Entry] = []
    skipped: dict[str, str] = {}
    for word in asked:
        if "=" in word:
            name, _, command = word.partition("=")
            entries.append(Entry(name, f"`{command}`", (tuple(shlex.split(command)),)))
        elif word not in GRADERS:
            entries.append(Entry(word, "a reward function", (_worker(sys.executable, _spec(word)),)))
        elif found := _pythons_with(GRADERS[word].module, pythons):
            commands = tuple(_worker(python, GRADERS[word].spec) for python in found)
            entries.append(Entry(word, _described(GRADERS[word], found[0]), commands, True))
        else:
            packages = " ".join((*GRADERS[word].packages, "mpmath"))
            install = f"uv venv .peers && uv pip install --python .peers/bin/python {packages}"
            skipped[word] = (
                f"{GRADERS[word].packages[0]} is not installed; `{install}`, then `--pythons .peers/bin/python`"
            )
    twice = [e.name for e in entries if sum(e.name == other.name for other in entries) > 1]
    if twice:
        raise UserError(f"grader {twice[0]!r} is named twice")
    return entries, skipped


def _worker(python: str, spec: str) -> tuple[str, ...]:
    return (str(Path(python).absolute()), "-m", "rlvr.leaderboard.worker", spec)


def _spec(word: str) -> str:
    """A reward function's name as it is found from another folder."""
    place, colon, function = word.rpartition(":")
    if not colon:
        if word not in names():
            raise UserError(
                f"unknown grader {word!r}.{did_you_mean(word, [*GRADERS, *names()])} There are: {listed(GRADERS)}; reward functions "
                f"({listed(names())}); package.module:function; path/to/file.py:function; NAME=COMMAND"
            )
        return word
    if place.endswith(".py") and not Path(place).is_file():
        raise UserError(f"grader {word!r}: there is no file {place}")
    return f"{Path(place).absolute() if place.endswith('.py') else place}:{function}"


def _described(named: Named, python: str) -> str:
    if not named.packages:
        return named.text
    look = f"from importlib.metadata import version; print(version({named.packages[0]!r}), end='')"
    found = subprocess.run([python, "-c", look], capture_output=True, text=True, check=True).stdout
    return f"{named.text}, {named.packages[0]} {found}"


def _pythons_with(module: str, pythons: Sequence[str]) -> list[str]:
    if not module:
        return [sys.executable]
    here = importlib.util.find_spec(module) is not None
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    others = [p for p in pythons if subprocess.run([p, "-c", look], check=False).returncode == 0]
    return [sys.executable, *others] if here else others


def measure(
    entries: Sequence[Entry],
    sets: Sequence[CaseSet],
    deadline_s: float,
    advance: Callable[[str, int], None] = lambda name, n: None,
) -> Board:
    """Give every case to every grader.

    Args:
        deadline_s: processor time for one case; what takes longer hangs.
        advance: told the name of a set, and how many verdicts more are there.

    Raises:
        UserError: a grader can't be started, or answers in no way that is known.
    """
    processes: dict[str, GraderProcess] = {}
    board = Board(facts(), {}, {})
    try:
        for entry in entries:
            found = _started(entry, deadline_s)
            if isinstance(found, GraderProcess):
                processes[entry.name] = found
                board.graders[entry.name] = entry.text
            elif entry.may_be_absent:
                board.skipped[entry.name] = str(found)
            else:
                raise found
        for one in sets:
            board.cells += _turns(one, processes, advance)
        for name, process in processes.items():
            board.memory_bytes[name] = process.memory_bytes
            board.left_behind[name] = process.left_behind()
    finally:
        for process in processes.values():
            process.close()
    return board


def _started(entry: Entry, deadline_s: float) -> GraderProcess | UserError:
    error = UserError(f"grader {entry.name!r} has no command")
    for command in entry.commands:
        try:
            return GraderProcess(entry.name, command, deadline_s)
        except UserError as failed:
            error = failed
    return error


def _turns(one: CaseSet, processes: Mapping[str, GraderProcess], advance: Callable[[str, int], None]) -> list[Cell]:
    cells = {name: Cell(name, one.name) for name in processes}
    for start in range(0, len(one.cases), TURN):
        some = one.cases[start : start + TURN]
        for name, process in processes.items():
            for case in some:
                cells[name].add(case, process.ask(case))
                advance(one.name, 1)
            process.look_at_memory()
    return list(cells.values())


def groups_of(board: Board) -> dict[str, dict[str, list[int]]]:
    """Attack -> grader -> how many of its cases it got wrong, and of how many; over all sets."""
    found: dict[str, dict[str, list[int]]] = defaultdict(dict)
    for cell in board.cells:
        for group, (wrong, count) in cell.groups.items():
            counts = found[group].setdefault(cell.grader, [0, 0])
            counts[0] += wrong
            counts[1] += count
    return dict(sorted(found.items()))


def facts() -> dict[str, str]:
    """What the figures depend on; no name and no path of the machine."""
    found = {
        "processor": processor(),
        "usable cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "load at the start": f"{os.getloadavg()[0]:.2f}",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
