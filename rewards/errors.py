"""The one exception that stands for a user's mistake, and the nearest known name for its message."""

from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """A mistake in what the user gave: a flag, template, dataset row, checkpoint or plugin.

    The message says what was given, what is allowed and what to do. The command line prints it without a traceback
    and exits with status 2. Any other exception is a bug and keeps its traceback.
    """


def nearest(given: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the known name nearest to `given`, or nothing where none is near."""
    near = get_close_matches(given, list(known), n=1)
    return f" Did you mean {near[0]!r}?" if near else ""
