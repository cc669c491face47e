"""Checks of each setting by itself: its range, and whether anything reads it in this run.

The rules are beside the fields (`rlvr.config.fields`), and hold for every kind of run. A setting that nothing reads is refused
only if the user gave it: by a flag, whatever the value, or in a file or in Python with a value other than that of defaults,
preset and built-in model. (A file may be a whole saved configuration, most of which the user never set.)
"""

from collections.abc import Collection
from typing import Any

from rlvr.config.catalog import Flag, Place, values_of
from rlvr.config.fields import ReadWhen, Text
from rlvr.config.layers import AnyConfig, untouched
from rlvr.config.secrets import REDACTED
from rlvr.errors import UserError

MOST = 2**63 - 1
"""What 64 bits hold: more can be neither counted nor drawn from."""


def check_ranges(config: AnyConfig) -> None:
    """Refuse values out of range, and those of a saved file that have lost their secrets (`rlvr.config.secrets`).

    Raises:
        UserError: names the first such setting and what is allowed.
    """
    for flag, value in values_of(config):
        if REDACTED in str(value):
            raise UserError(
                f"--{flag.name} {value}: its secret was left out when the settings were saved; give it again"
            )
        unbounded = any(allowed.infinite for allowed in flag.ranges)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, int | float) and not (unbounded or -MOST <= number <= MOST):  # of NaN, too
                raise UserError(f"--{flag.name} {str(number)[:30]}: must be a finite number, at most {MOST:.2g}")
        for allowed in flag.ranges:
            if not allowed.allows(value):
                raise UserError(f"--{flag.name} {value}: must {allowed.text}")


def check_unread(config: AnyConfig, flags: Collection[Place] = ()) -> None:
    """Refuse settings of the user that nothing reads.

    Args:
        config: the settings.
        flags: the settings that flags gave, which count whatever their value.

    Raises:
        UserError: names the first such setting, says why it has no effect and what to do.
    """
    usual = {flag.place: value for flag, value in values_of(untouched(config))}
    for flag, value in values_of(config):
        said = flag.place in flags or value != usual[flag.place]
        for rule in flag.read_when:
            if (said or rule.strict) and not rule.allows(value):
                _check_read(config, flag, value, rule)


def _check_read(config: AnyConfig, flag: Flag, value: Any, rule: ReadWhen) -> None:
    """Refuse a value if a condition of the rule does not hold."""
    failed = next((condition for condition in rule.conditions if not condition(config)), None)
    if failed is None:
        return
    instead = _text(failed.instead, config)
    # A preset may have given the value, and then there is no flag to leave out.
    remedy = f"; give {as_flag(flag.name, flag.default)}" if rule.strict else ". Leave it out"
    or_else = f", or {instead}" if instead else ""
    raise UserError(f"{as_flag(flag.name, value)} has no effect{_text(failed.why, config)}{remedy}{or_else}")


def _text(text: Text, config: AnyConfig) -> str:
    return text if isinstance(text, str) else text(config)


def as_flag(name: str, value: Any) -> str:
    """A setting as one types it."""
    if isinstance(value, bool):
        return f"--{name}" if value else f"--no_{name}"
    return f"--{name} {' '.join(map(str, value)) if isinstance(value, list) else value}"
