"""`UserError`, and what messages to the user are made of: the nearest known name, lists, text that is safe to print.

`UserError` itself lives in `rewards`, which must not import `rlvr`.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from unicodedata import category

from rewards.errors import UserError

__all__ = ["UserError", "did_you_mean", "escape_control_characters", "listed", "plain_name"]

# Controls, formats (which reorder or hide text), lone surrogates, line and paragraph separators.
_UNSAFE_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
# Kept nevertheless: line breaks, tabs, and the two joiners, which join and part the letters of many scripts, and emoji.
_SAFE_CHARACTERS = "\n\t\u200c\u200d"


MOST_BEGUN = 3
"""Most known names that are all named because they begin as what was given."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the known name nearest to `given`, or nothing where none is near.

    >>> did_you_mean("stop_id", ["stop_ids", "system_message"])
    " Did you mean 'stop_ids'?"
    >>> did_you_mean("lora", ["lr", "lora_config", "lora_merge"])
    " Did you mean 'lora_config' or 'lora_merge'?"
    """
    names = list(known)
    begun = [name for name in names if len(given) > 2 and name.startswith(given)]
    near = begun if 0 < len(begun) <= MOST_BEGUN else get_close_matches(given, names, n=1, cutoff=0.6)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


MOST_LISTED = 200


def listed(names: Iterable[str]) -> str:
    """The names, comma-separated, or `none`; of very many, the first."""
    known = list(names)
    more = [f"and {len(known) - MOST_LISTED:,} more"] if len(known) > MOST_LISTED else []
    return ", ".join([*known[:MOST_LISTED], *more]) or "none"


def plain_name(text: str) -> str:
    """The text as a name that every tracker and file system takes: letters, digits, `_`, `.` and `-`.

    >>> plain_name("openai/gsm8k: é")
    'openai_gsm8k___'
    """
    return "".join(char if char.isascii() and (char.isalnum() or char in "_.-") else "_" for char in text)


def escape_control_characters(text: str) -> str:
    r"""The text with every control character spelled out. Text from a model, a data set or a template passes this before it is
    shown: printed as it is, it could steer the terminal (colours, cursor, title, links) or hide and reorder what stands there.

    >>> escape_control_characters("\x1b[31mred\r")
    '␛[31mred␍'
    """
    return "".join(
        char if char in _SAFE_CHARACTERS or category(char) not in _UNSAFE_CATEGORIES else _spelled_out(char)
        for char in text
    )


def _spelled_out(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of control characters
    if code == 0x7F:
        return "\u2421"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
