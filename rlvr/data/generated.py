"""The data sets that are generated here, by name: `NAME@LEVEL:SPLIT`, as sets of the hub are named.

    builtin              running sums for the built-in model (`rlvr/data/builtin.py`); @5: of five numbers
    arithmetic@2         sums and differences of two digits (`rlvr/data/arithmetic.py`)
    word_problems:test   held-out word problems of all levels (`rlvr/data/word_problems.py`)

Each gives problems for training with rewards, and the same problems with a worked solution for fine-tuning
(`worked_example`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from rlvr.config import GENERATED
from rlvr.data.arithmetic import ARITHMETIC
from rlvr.data.builtin import LEVELS, builtin_problems
from rlvr.data.drawing import Split
from rlvr.data.patterns import Worded
from rlvr.data.problems import Problem
from rlvr.data.word_problems import WORD_PROBLEMS
from rlvr.errors import UserError, did_you_mean, listed

SIZES = {"train": 20_000, "test": 2_000}
"""How many problems there are without a limit, or fewer where there are no more."""


@dataclass(frozen=True)
class GeneratedSet:
    """One set: its levels, and what makes problems of a split, count, seed and level."""

    levels: tuple[str, ...]
    problems: Callable[[Split, int, int, str | None], list[Problem]]


def _worded(worded: Worded) -> GeneratedSet:
    return GeneratedSet(tuple(worded.levels), worded.problems)


SETS: Mapping[str, GeneratedSet] = dict(
    zip(
        GENERATED,
        (
            GeneratedSet(LEVELS, builtin_problems),
            _worded(ARITHMETIC),
            _worded(WORD_PROBLEMS),
        ),
        strict=True,
    )
)


def read_generated(source: str, split: str | None, limit: int | None, seed: int) -> list[Problem]:
    """The problems of a source that `rlvr.config.is_generated` says yes to.

    Args:
        split: where the source names none; None is `train`.
        limit: most problems.

    Raises:
        UserError: no such split or level.
    """
    name, level, chosen = chosen_set(source, split)
    return SETS[name].problems(chosen, limit or SIZES[chosen], seed, level)


def chosen_set(source: str, split: str | None = None) -> tuple[str, str | None, Split]:
    """Name, level (None: all) and split of a generated set. Arguments and errors are those of `read_generated`."""
    name_and_level, _, named = source.partition(":")
    name, at, level = name_and_level.partition("@")
    levels, chosen = SETS[name].levels, named or split or "train"
    if at and level not in levels:
        there = listed(f"{name}@{one}" for one in levels)
        raise UserError(f"the generated problems {name} have no level {level!r}; give {there}, or {name} for all")
    if chosen not in SIZES:
        raise UserError(
            f"the generated problems {name} have no split {chosen!r}; give {listed(f'{name_and_level}:{s}' for s in SIZES)}."
            f"{did_you_mean(chosen, SIZES)}"
        )
    return name, level or None, cast(Split, chosen)
