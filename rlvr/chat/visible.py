"""Text of a model made safe for a terminal: what would move the cursor, change colours or hide text is spelled out."""

from unicodedata import category

_KEPT = "\n\t\u200c\u200d"  # the last two join and part letters of many scripts, and emoji


def visible(text: str) -> str:
    r"""The text with every control character replaced by something that can be seen.

    >>> visible("\x1b[31mred\r")
    '␛[31mred␍'
    """
    return "".join(char if char in _KEPT or category(char) not in _UNSAFE else _spelled(char) for char in text)


# Controls, formats (which reorder or hide text), lone surrogates, line and paragraph separators.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def _spelled(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)  # Unicode's pictures of control characters
    if code == 0x7F:
        return "\u2421"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
