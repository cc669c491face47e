"""The nearest known name to what was given, for error messages."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the known name nearest to `given`, or nothing where none is near.

    >>> did_you_mean("stop_id", ["stop_ids", "system_message"])
    " Did you mean 'stop_ids'?"
    """
    near = get_close_matches(given, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """The names, comma-separated, or `none`."""
    return ", ".join(names) or "none"
