r"""Answers to problems of several parts, and names of angles: what is told apart by its label or by its order.

>>> parts("(a) 3 (b) 5"), parts("a) 3; b) $x > 5$"), parts("(1) 3, (2) 5"), parts("(i) 3 (ii) 5")
(['3', '5'], ['3', '$x > 5$'], ['3', '5'], ['3', '5'])
>>> parts("(a)(b)"), parts("(b) 3 (a) 5"), parts("(1)(3)"), parts("f(a) + (b)")
(None, None, None, None)
>>> in_order("3, (4, 5) and 6"), angle(r"\angle BAC"), angle("BAC")
(['3', '(4, 5)', '6'], 'BAC', '')
"""

import re

MAX_PARTS = 8
MAX_CHARACTERS = 600

_LABEL = re.compile(
    r"(?:^|(?<=[\s,;.$]))(?:\$|\\text\w*\{)?(?:part\s*)?\(?(?P<name>[a-h]|iv|v?i{1,3}|v|[1-8])\)\}?\s*[:.]?(?=[\s$\\]|-?[\d.])",
    re.IGNORECASE,
)
_SEQUENCES = ("abcdefgh", ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii"), "12345678")
_SEPARATORS = re.compile(r"^[\s,;.$]+|(?:[\s,;.$]|\band\b|\\quad|\\,|\\\\)+$")
_ANGLE = re.compile(r"(?:\\(?:measured)?angle|∠|m\\angle|angle)\s*\{?\s*([A-Z])\s*([A-Z])\s*([A-Z])\s*\}?")


def parts(text: str) -> list[str] | None:
    """What stands behind the labels (a), (b), ... or (i), (ii), ... or (1), (2), ...; None without at least two in order."""
    if len(text) > MAX_CHARACTERS or ")" not in text:
        return None
    for names in _SEQUENCES:
        labels = [m for m in _LABEL.finditer(text) if m["name"].lower() in names]
        if (
            len(labels) < 2
            or labels[0].start() > 0
            or [m["name"].lower() for m in labels] != list(names[: len(labels)])
        ):
            continue
        ends = [m.start() for m in labels[1:]] + [len(text)]
        found = [_bare(text[m.end() : end]) for m, end in zip(labels, ends, strict=True)]
        return found if all(found) else None
    return None


def _bare(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("$") and stripped.endswith("$") and stripped.count("$") == 2:
        return stripped
    return (
        _SEPARATORS.sub("", stripped.replace("$", ""))
        if stripped.count("$") % 2
        else stripped.strip(" ,;.").removesuffix(" and").strip(" ,;")
    )


def in_order(text: str) -> list[str]:
    """A bare list at the commas, semicolons and "and" outside of its brackets."""
    found, depth, start = [], 0, 0
    for match in re.finditer(r"[(\[{]|[)\]}]|,|;|\band\b", text):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if depth == 0 and match[0] in (",", ";", "and"):
            found.append(text[start : match.start()].strip())
            start = match.end()
    return [part for part in (*found, text[start:].strip()) if part]


def angle(text: str) -> str:
    """The three letters of an angle's name; "" for anything else."""
    match = _ANGLE.fullmatch(text)
    return "".join(match.groups()) if match else ""
