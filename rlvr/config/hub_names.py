"""Names on the Hugging Face hub with a revision: `owner/name#revision`, a branch, a tag or a commit.

A revision is part of the name, and no setting of its own: a run names several models and data sets, and each has its own.
"""

import re
from pathlib import Path

from rlvr.errors import UserError

_REVISION = re.compile(r"\w[\w./-]*")


def split_revision(name: str) -> tuple[str, str | None]:
    """A name without its revision, and the revision; None where it has none, and for what lies here under the whole name.

    >>> split_revision("Qwen/Qwen3-0.6B#c1899de")
    ('Qwen/Qwen3-0.6B', 'c1899de')

    Raises:
        UserError: a revision of a file or folder, or one that is none.
    """
    if "#" not in name or Path(name).exists():
        return name, None
    base, _, revision = name.rpartition("#")
    if base.startswith((".", "/", "~")) or Path(base).exists():
        raise UserError(f"{name}: {base} lies here, and only names on the hub have revisions: leave #{revision} out")
    if not _REVISION.fullmatch(revision):
        raise UserError(f"{name}: {revision!r} is no revision: give a branch, a tag or a commit, as in owner/name#main")
    return base, revision
