"""The plan of a study: a YAML file, and the runs that it asks for.

out: runs/presets                       # folder of the runs: OUT/ppo/seed-0, ...
seeds: [0, 1, 2]
settings:                               # of all runs, by the names of the flags of `rlvr train`
  reward_functions: [gsm8k_reward_fn]
  eval_interval: 2
grid:                                   # one run for each combination and seed
  preset: [ppo, grpo]                   # a flag with its values, or
  data:                                 # a name of yours, with named settings
    sums: {prompt_dataset: [arithmetic@1]}
    stories: {prompt_dataset: ["word_problems@1"]}
targets: [0.9]                          # when is this accuracy reached?
baseline: {preset: ppo}                 # what others are compared with, seed by seed
across: [data]                          # also all of these together, as strata
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from rlvr.config import Config, base_config, by_section
from rlvr.config.files import parse_yaml, read_text
from rlvr.errors import UserError, did_you_mean, listed
from rlvr.validate.ppo import check_config

Cell = Mapping[str, str]
"""A combination of the grid: by axis, the name of the value."""
OWN = ("seed", "save_path", "resume")
"""Settings that a study gives each run itself."""


@dataclass(frozen=True)
class Run:
    """One training run of a study.

    Attributes:
        cell: its place in the grid.
        seed: of the run.
        settings: by the names of flags, without those in `OWN`.
        folder: where it lies.
    """

    cell: Cell
    seed: int
    settings: Mapping[str, Any]
    folder: Path

    @property
    def name(self) -> str:
        return f"{label(self.cell)} seed {self.seed}".strip()

    @property
    def is_finished(self) -> bool:
        """True if it wrote its model, which it does last."""
        return any((self.folder / "actor" / kind).is_dir() for kind in ("modeling", "adapter"))

    def config(self) -> Config:
        """Its settings as a tree, presets laid out.

        Raises:
            UserError: a setting that there is none, a wrong value, or settings that don't go together.
        """
        config = base_config(by_section({**self.settings, "seed": self.seed, "save_path": str(self.folder)}))
        check_config(config)
        return config

    def as_yaml(self) -> str:
        """The settings as a file for `rlvr train --config`."""
        return yaml.safe_dump(by_section({**self.settings, "seed": self.seed}), sort_keys=False)


@dataclass(frozen=True)
class Study:
    """A study as its file has it.

    Attributes:
        out: folder of the runs.
        seeds: a run of each combination for each of them.
        settings: of all runs.
        grid: by axis its values, or its named settings.
        metric: what is compared: of `metrics.jsonl`, and the more the better.
        targets: values of the metric that runs are timed to.
        after: numbers of responses after which the metric is shown, too.
        baseline: the combination that others are compared with; axes that it leaves out are compared each with its own.
        across: axes whose values are put together as strata, in further rows of the table.
        also: further metrics of the table: the mean over episodes from the first to the second number, by metric.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    out: str = ""
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    settings: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any] | dict[str, dict[str, Any]]] = field(default_factory=dict)
    metric: str = "eval/accuracy"
    targets: list[float] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    baseline: dict[str, str] = field(default_factory=dict)
    across: list[str] = field(default_factory=list)
    also: dict[str, tuple[int, int]] = field(default_factory=dict)

    @cached_property
    def axes(self) -> dict[str, dict[str, dict[str, Any]]]:
        """By axis and name of the value, its settings."""
        return {
            axis: values if isinstance(values, dict) else {str(value): {axis: value} for value in values}
            for axis, values in self.grid.items()
        }

    @cached_property
    def cells(self) -> list[Cell]:
        """The combinations of the grid; a single one without names where there is no grid."""
        return [
            dict(zip(self.axes, names, strict=True)) for names in itertools.product(*(v for v in self.axes.values()))
        ]

    @cached_property
    def runs(self) -> list[Run]:
        """Seed by seed, so that a study that is stopped has as many of each combination."""
        return [self._run(cell, seed) for seed in self.seeds for cell in self.cells]

    def _run(self, cell: Cell, seed: int) -> Run:
        settings = dict(self.settings)
        for axis, name in cell.items():
            settings |= self.axes[axis][name]
        return Run(cell, seed, settings, Path(self.out, *map(_as_folder, cell.values()), f"seed-{seed}"))

    def only(self, names: Sequence[str]) -> "Study":
        """The same study with these values of the grid alone; axes of which none is named stay whole.

        Raises:
            UserError: no axis has such a value.
        """
        known = [name for values in self.axes.values() for name in values]
        for name in names:
            if name not in known:
                raise UserError(f"--only {name}: the grid has {listed(known)}.{did_you_mean(name, known)}")
        grid: dict[str, list[Any] | dict[str, dict[str, Any]]] = {}
        for axis, values in self.axes.items():
            grid[axis] = {name: values[name] for name in values if name in names} or values
        return replace(self, grid=grid)

    def check(self) -> None:
        """Raise `UserError` for names that there are not, two runs in one folder, and settings that training would refuse."""
        if not self.seeds:
            raise UserError("seeds: there are none, so there is nothing to run; give some, such as [0, 1, 2]")
        for axis, given in self.grid.items():
            if not given:
                raise UserError(f"grid: {axis} has no value, so there is nothing to run; give some, or leave it out")
            named = [str(value) for value in given]
            if again := [one for one in named if named.count(one) > 1]:
                raise UserError(f"grid: {axis} has {again[0]} more than once; name each value once")
        for axis in (*self.across, *self.baseline):
            if axis not in self.axes:
                raise UserError(
                    f"there is no axis {axis!r} in the grid; there are {listed(self.axes)}.{did_you_mean(axis, self.axes)}"
                )
        for axis, name in self.baseline.items():
            if name not in self.axes[axis]:
                raise UserError(f"baseline: {axis} has no value {name!r}; give one of {listed(self.axes[axis])}")
        for name in {name for run in self.runs for name in run.settings if name in OWN}:
            raise UserError(f"the setting {name!r} is the study's own: leave it out (seeds: and out: say what it is)")
        folders = [run.folder for run in self.runs]
        if len(set(folders)) < len(folders):
            twice = next(folder for folder in folders if folders.count(folder) > 1)
            raise UserError(f"two runs would share the folder {twice}: name each seed and each value once")
        for run in self.runs[: len(self.cells)]:
            try:
                run.config()
            except UserError as error:
                raise UserError(f"{label(run.cell) or 'settings'}: {error}") from None


def read_study(path: Path, changes: Mapping[str, Any]) -> Study:
    """The study of a YAML file, checked; what is not None in `changes` stands in place of the file's.

    Raises:
        UserError: a file that can't be read, or a plan that can't be carried out; says what to change.
    """
    try:
        tree = parse_yaml(read_text(path))
    except OSError as error:
        raise UserError(f"study {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"study {path}: not valid YAML: {error}") from None
    if not isinstance(tree, dict):
        raise UserError(
            f"study {path}: must hold a mapping ({listed(f.name for f in fields(Study))}), not {type(tree).__name__}"
        )
    given = {name: value for name, value in changes.items() if value is not None}
    try:
        study = TypeAdapter(Study).validate_python({"out": f"runs/{path.stem}", **tree, **given})
        study.check()
    except ValidationError as error:
        raise UserError(f"study {path}: {'; '.join(map(_describe, error.errors()))}") from None
    except UserError as error:
        raise UserError(f"study {path}: {str(error).removeprefix('config: ')}") from None
    return study


def _describe(error: Any) -> str:
    place, known = ".".join(map(str, error["loc"])), [f.name for f in fields(Study)]
    if error["type"] == "unexpected_keyword_argument":
        return f"unknown key {place!r}; known here: {listed(known)}.{did_you_mean(place, known)}"
    return f"{place} = {error['input']!r}: {error['msg']}"


def label(cell: Cell, axes: Sequence[str] = ()) -> str:
    """How a combination is called, without these axes."""
    return ", ".join(name for axis, name in cell.items() if axis not in axes)


def _as_folder(name: str) -> str:
    """A name as one part of a path."""
    return "-".join("".join(c if c.isalnum() or c in "_.-+" else " " for c in name).split())
