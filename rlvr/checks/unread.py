"""A setting that nothing reads in the given combination is a mistake: rules that say when a setting is read.

Only what the user said counts: a flag that was given, whatever its value, and a value (of a file or of Python) that
differs from what defaults, preset and built-in model would have given. A file may hold a whole saved configuration.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rlvr.config.catalog import Place
from rlvr.errors import UserError


@dataclass(frozen=True)
class Rule:
    """Settings that are read under one condition.

    Attributes:
        section, names: the settings.
        read: whether this combination reads them.
        why: why it does not otherwise; goes on after "has no effect".
        remedy: what to do about it.
        off: a value that says what is the case anyway; it may be given.
    """

    section: str
    names: tuple[str, ...]
    read: Callable[[Any], bool]
    why: Callable[[Any], str]
    remedy: Callable[[Any], str] = lambda c: "Leave it out"
    off: tuple[Any, ...] = ()

    def allows(self, value: Any) -> bool:
        """Whether the value only says what is the case anyway. (True is not 1.)"""
        return any(value == off and isinstance(value, bool) == isinstance(off, bool) for off in self.off)


def refuse_unread(config: Any, untouched: Any, rules: Sequence[Rule], flags: Collection[Place] = ()) -> None:
    """Refuse settings of the user that nothing reads.

    Args:
        config: the settings.
        untouched: what they would be, had the user given none but model and preset.
        rules: when each is read.
        flags: those that flags gave; they count whatever their value.

    Raises:
        UserError: names the first such setting, says why it has no effect and what to do.
    """
    said = {*flags, *_differing(config, untouched)}
    for rule in rules:
        for name in rule.names:
            value = getattr(getattr(config, rule.section), name)
            if (rule.section, name) in said and not rule.allows(value) and not rule.read(config):
                raise UserError(f"{as_flag(name, value)} has no effect{rule.why(config)}. {rule.remedy(config)}")


def as_flag(name: str, value: Any) -> str:
    """A setting as one types it."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no_{name}"
    return f"--{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"


def _differing(config: Any, untouched: Any) -> set[Place]:
    return {
        (section.name, field.name)
        for section in fields(config)
        for field in fields(getattr(config, section.name))
        if getattr(getattr(config, section.name), field.name) != getattr(getattr(untouched, section.name), field.name)
    }
