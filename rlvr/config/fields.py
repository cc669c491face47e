"""Notes in the annotations of settings: further names, range, when the setting is read, whether a resume may change it.

They are beside the type, so that flags, help, the docs' page of settings, the checks before a run and resuming all read the same
line:

    eps_clip: Annotated[float, alias("cliprange"), at_least(0)] = 0.2

`rlvr.config.catalog` collects it, `rlvr.validate.settings` refuses what it rules out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

import tyro

T = TypeVar("T")
Text = str | Callable[[Any], str]
"""A text, or a function that makes it from the run's settings."""


def alias(*names: str) -> Any:
    """Further names of the flag, such as other toolkits' names of the setting."""
    return tyro.conf.arg(aliases=[f"--{name}" for name in names])


@dataclass(frozen=True)
class Range:
    """The values that a setting may have. None, where a field may be None, always may.

    Attributes:
        holds: true for a value in the range; false for NaN.
        text: follows "--name value: must " in the message.
        infinite: infinity is in the range, and has a meaning.
    """

    holds: Callable[[Any], bool]
    text: str
    infinite: bool = False

    def allows(self, value: Any) -> bool:
        return value is None or self.holds(value)


def at_least(least: float, more: str = "", infinite: bool = False) -> Range:
    """`least` or above; `more` ends the message, such as "; 0 = off"."""
    return Range(lambda value: value >= least, f"be at least {least}{more}", infinite)


def above(limit: float, more: str = "") -> Range:
    """Greater than `limit`."""
    return Range(lambda value: value > limit, f"be above {limit}{more}")


def between(low: float, high: float) -> Range:
    """From `low` to `high`, both included."""
    return Range(lambda value: low <= value <= high, f"lie between {low} and {high}")


finite = Range(math.isfinite, "be a finite number")


@dataclass(frozen=True)
class Condition:
    """A named condition under which settings are read. Called with the run's settings, it returns True or False.

    Attributes:
        holds: the predicate.
        why: the reason why a setting is not read if it doesn't hold; follows "--name value has no effect".
        instead: an alternative to leaving the setting out, if there is one; follows "Leave it out, or ".
    """

    holds: Callable[[Any], bool]
    why: Text
    instead: Text = ""

    def __call__(self, config: Any) -> bool:
        return self.holds(config)


def condition(why: Text, instead: Text = "") -> Callable[[Callable[[Any], bool]], Condition]:
    """Make a `Condition` of the decorated predicate."""
    return lambda holds: Condition(holds, why, instead)


UNSET: Any = object()


@dataclass(frozen=True, eq=False)  # annotations are hashed, and `off` may be a list
class ReadWhen:
    """A setting is read where all these conditions hold; see `read_when`."""

    conditions: tuple[Condition, ...]
    off: Any
    strict: bool

    def allows(self, value: Any) -> bool:
        """True if the value is the one that changes nothing. (True is not 1 here.)"""
        return value == self.off and isinstance(value, bool) == isinstance(self.off, bool)


def read_when(*conditions: Condition, off: Any = UNSET, strict: bool = False) -> ReadWhen:
    """The setting has an effect only where the conditions hold.

    Args:
        conditions: of `rlvr.config.conditions`; the first that does not hold is named in the message.
        off: a value that changes nothing, and so may always be given.
        strict: refuse the value whoever gave it, a preset too, because the run could not work with it. Otherwise only values of
            the user's are refused: a preset has settings for its own estimator, which the user may have replaced.
    """
    return ReadWhen(conditions, off, strict)


class OnResume(Enum):
    """FREE settings may differ between a run and its continuation; FIXED ones may not, as they change what is learned. What GROWS
    may be raised: a run is made longer, and its learning rate goes on by the schedule of the longer one."""

    FREE = "free"
    FIXED = "fixed"
    GROWS = "grows"


FREE, FIXED, GROWS = OnResume.FREE, OnResume.FIXED, OnResume.GROWS


def free_on_resume(section: type[T]) -> type[T]:
    """Class decorator: settings of the section are `FREE` unless marked `FIXED`. Without it, they are `FIXED` unless marked."""
    section.on_resume = FREE  # type: ignore[attr-defined]
    return section
