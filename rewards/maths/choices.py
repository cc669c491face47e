"""Multiple choice: the letter, and what stands beside it.

>>> choice("B"), choice("(B) 42"), choice(r"\\textbf{(B)}\\ 42"), choice("Option B"), choice("B. Blue")
(('B', ''), ('B', '42'), ('B', '42'), ('B', ''), ('B', 'Blue'))
>>> choice("Apple"), choice("(A) 5 or (B) 6"), choice("A, B"), choice("B. not C")
(None, None, None, None)
"""

import re

MAX_CHARACTERS = 300
_DRESS = re.compile(r"\\(?:text|textbf|textrm|textit|mathrm|mathbf|mbox|bf|rm)\s*\{([^{}]*)\}|\*\*|\$")
_CHOICE = re.compile(
    r"(?:(?:option|choice|answer)\s*)?(?:\(([A-Z]|[a-e])\)|([A-Z])(?=$|\s*[).:]))\s*[).:]?\s*(.*)", re.DOTALL
)
_OTHER = re.compile(r"\([A-Za-e]\)|\b(?:or|not|and)\s+[A-Z]\b|\bor\b")
_PREFIX = re.compile(r"(?:option|choice|answer)\s+", re.IGNORECASE)


def choice(tidied: str) -> tuple[str, str] | None:
    """The letter of one choice and what it stands for; None for anything else, and for several choices."""
    if len(tidied) > MAX_CHARACTERS:
        return None
    bare = _PREFIX.sub("", _DRESS.sub(lambda m: m[1] or "", tidied).replace("\\ ", " ").strip(), count=1)
    match = _CHOICE.fullmatch(bare)
    if match is None or _OTHER.search(match[3]):
        return None
    letter, content = (match[1] or match[2]).upper(), match[3].strip()
    return letter, content
