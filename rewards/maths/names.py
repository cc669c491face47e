"""Runs of letters into symbols, functions, words and units: what "xy", "sin", "cm" and "and" are."""

import re

from rewards.maths.lexer import Token
from rewards.maths.words import CONSTANTS, FUNCTIONS, GREEK, LETTER_UNITS, SHORT_WORDS, UNIT_MODIFIERS, UNITS, unit_name

_JOINERS = {"and": "and", "or": "or", "&": "and"}
_PERCENT = frozenset({"percent", "pct", "percentage"})
_CURRENCY_CODES = frozenset({"USD", "EUR", "GBP", "RMB", "Rs"})
_GLUED = {name + "x": name for name in ("sin", "cos", "tan", "ln", "log")}


def resolve_letters(found: list[Token]) -> list[Token]:
    """Tokens without letters: each run becomes symbols, a command, a word, or a separator."""
    out: list[Token] = []
    for place, token in enumerate(found):
        if token.kind == "letters":
            out.extend(_letters(token, out[-1] if out else None, found[place + 1 : place + 3]))
        elif token.kind == "word":
            out.extend(_words(token, out[-1] if out else None))
        elif token.kind == "end":
            out.append(token._replace(kind="end_environment"))
        else:
            out.append(token)
    return out


def _letters(token: Token, before: Token | None, following: list[Token]) -> list[Token]:
    text, lower = token.text, token.text.lower()
    after = following[0] if following else None
    if lower in _JOINERS:
        return [token._replace(kind="sep", text=_JOINERS[lower])]
    if lower in _PERCENT:
        return [token._replace(kind="op", text="%")]
    if lower in ("degree", "degrees") and before is not None and before.kind in ("number", "close"):
        return [token._replace(kind="op", text="degree")]
    if text == "sqrt":
        return [token._replace(kind="command", text="√")]
    if text == "log" and _is_base(following):
        return [token._replace(kind="command"), Token("op", "_")]
    if text in FUNCTIONS or text in CONSTANTS and len(text) > 1 or (text in GREEK and len(text) > 1) or text == "mod":
        return [token._replace(kind="command")]
    if text in _CURRENCY_CODES:
        return [token._replace(kind="word")]
    if text in _GLUED:
        return [token._replace(kind="command", text=_GLUED[text]), Token("symbol", "x")]
    if text == "x" and before is not None and before.kind == "number" and after is not None and after.text == "10":
        return [token._replace(kind="op", text="*")]
    if _is_unit(lower, before):
        return [token._replace(kind="word")]
    if len(text) == 1:
        return [token._replace(kind="symbol")]
    if (
        len(text) >= 4
        or (len(text) == 3 and not _beside_mathematics(before, after))
        or lower in SHORT_WORDS
        or (lower in ("an", "it", "on", "at", "as", "by") and after is not None and after.kind == "letters")
    ):
        return [token._replace(kind="word")]
    return [Token("symbol", letter, token.spaced and i == 0) for i, letter in enumerate(text)]


def _is_base(following: list[Token]) -> bool:
    """log2(x) and log10(x) name their base."""
    if len(following) < 2 or following[0].spaced:
        return False
    return following[0].text in ("2", "10") and following[1].kind == "open"


def _is_unit(lower: str, before: Token | None) -> bool:
    """A unit stands behind a number or another word; a single letter may as well be a variable."""
    if before is None or lower not in UNITS and lower not in UNIT_MODIFIERS:
        return False
    if before.kind == "word" and unit_name(before.text):
        return True
    return len(lower) > 1 and (before.kind in ("number", "close") or (before.kind == "command" and before.text == "pi"))


def _may_be_measured(token: Token, before: Token | None) -> bool:
    return before is not None and (before.kind == "number" or (before.kind == "close" and token.spaced))


def _beside_mathematics(before: Token | None, after: Token | None) -> bool:
    return any(t is not None and t.kind in ("op", "rel", "number", "open", "close", "command") for t in (before, after))


def _words(token: Token, before: Token | None) -> list[Token]:
    """What stands in a \\text{...}: a joiner, a letter, a function, a number, or words."""
    text = token.text.strip(" .,;:") if token.text.strip(" .,;:") else token.text
    lower = text.lower()
    if not lower or lower in ",;":
        return [token._replace(kind="sep", text=",")] if lower in (",", ";") else []
    if lower in _JOINERS:
        return [token._replace(kind="sep", text=_JOINERS[lower])]
    if lower in _PERCENT:
        return [token._replace(kind="op", text="%")]
    if lower in ("degree", "degrees") and before is not None and before.kind in ("number", "close"):
        return [token._replace(kind="op", text="degree")]
    if _is_unit(lower, before) or (text in LETTER_UNITS and _may_be_measured(token, before)):
        return [token._replace(kind="word", text=text)]
    if len(text) == 1 and text.isalpha():
        return [token._replace(kind="symbol", text=text)]
    if text in FUNCTIONS or text in CONSTANTS:
        return [token._replace(kind="command", text=text)]
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return [token._replace(kind="number", text=text)]
    joined = re.fullmatch(r"(?:(and|or)\s+)?(.*?)(?:,?\s+(and|or))?", text, re.IGNORECASE)
    if joined and (joined[1] or joined[3]):
        before_it, inside, after_it = joined[1], joined[2], joined[3]
        parts = [Token("sep", before_it.lower())] if before_it else []
        parts += _words(Token("word", inside), before if not parts else parts[-1])
        return parts + ([Token("sep", after_it.lower())] if after_it else [])
    return [token._replace(kind="word", text=text)]
