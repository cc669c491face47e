"""Normalisation of answers as text: formatting is removed, the content stays."""

import re
from functools import lru_cache

MAX_ANSWER_CHARACTERS = 2000
MAX_REMEMBERED = 256
"""Texts; a verdict asks for the same ones several times."""

_WRAPPERS = re.compile(
    r"^\\(?:text|textbf|textit|textnormal|mathrm|mathbf|mbox|boxed|fbox|bf|rm)\s*\{(.*)\}$", re.DOTALL
)
_SPACES = re.compile(r"(?:(?<!\\)\\[,;:! ]|\\q?quad|~|\s)+")
_QUOTES = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("*", "*"), ("`", "`"), ('"', '"'))
_WORDS = re.compile(r"[A-Za-z .,'-]+")
_MANY_SPACES = re.compile(r"\s{2,}")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff\u00ad]")
_TRANSLATION = str.maketrans(
    {
        "\u2212": "-",
        "\uff0c": ",",
        "\uff08": "(",
        "\uff09": ")",
        "\uff1a": ":",
        "\u3002": ".",
        "\uff05": "%",
        "\u00a0": " ",
        "\u202f": " ",
        "\u2009": " ",
    }
)


_BROKEN = {"\x0crac": "\\frac", "\text": "\\text", "\times": "\\times", "\theta": "\\theta", "\tan": "\\tan", "\x08oxed": "\\boxed", "\x08egin": "\\begin",
           "\x08inom": "\\binom", "\x08eta": "\\beta", "\x08ar": "\\bar", "\right": "\\right", "\rho": "\\rho"}  # fmt: skip
"""LaTeX that was written into JSON or Python with single backslashes, and what it was meant to be."""
_CONTROL = re.compile("[\x08\x0c\t\r][a-z]+")
_DOUBLED = re.compile(
    r"\\\\(?=(?:[dt]?frac|sqrt|pi|text|mathrm|left|right|cdot|times|pm|mp|infty|leq?|geq?|neq?|in|cup|cap|log|ln|sin|cos|tan|theta|alpha|beta|binom|circ|boxed)(?![a-z]))"
)
_THOUSANDS = re.compile(r"(?<=\d)(?:,\\!\s?|\\!,\s?|\s?\{\s?,\s?\}\s?|\\,)(?=\d{3})")


@lru_cache(MAX_REMEMBERED)
def normalise(answer: str) -> str:
    """Strip math delimiters, text wrappers, spacing commands, a final full stop; unify sizes of brackets and fractions.

    A text longer than any answer becomes "": a part of it would mean something else.
    """
    text = answer.strip()
    if text.isdigit() and text.isascii() and len(text) <= MAX_ANSWER_CHARACTERS:
        return text
    # Not the stripped text: a backslash-t that was read as a tab is put back.
    text = answer if answer.isascii() else _INVISIBLE.sub("", answer).translate(_TRANSLATION)
    text = _MANY_SPACES.sub(" ", _unbroken(text).strip())
    if len(text) > MAX_ANSWER_CHARACTERS:
        return ""
    text = _repair(text).strip()
    text = _unwrapped(text)
    if not text.isascii():
        text = _CIRCLED.sub(_uncircled, text)
    if _DIGITS_IN_BRACES.fullmatch(text):
        text = text.replace("{", "").replace("}", "")
    if "\\" in text:
        text = _unwrapped(_with_plain_commands(text))
    if ("]" in text or "[" in text) and "\\sqrt[" not in text:
        text = _OUTWARD.sub(_inward, text)
    return _SPACES.sub(" ", text.replace("{}", "")).strip()


def _with_plain_commands(text: str) -> str:
    """Without colours and sizes; fractions in one form."""
    text = _STYLES.sub("", _SIZES.sub("", _COLOUR.sub("", text)))
    text = _CURRENCY_SIGNS.sub(lambda m: "£" if m[1] in ("pounds", "textsterling") else "€", text)
    if "-" in text and ("mathrm" in text or "text" in text):
        text = _SPLIT_UNITS.sub(lambda m: rf"\text{{{m[1]}/{m[2]}{'^' + m[3] if m[3] != '1' else ''}}}", text)
        text = _UPRIGHT.sub(_with_slash, text)
    text = text.replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return _UNIT_FRACTION.sub(r"\\text{\1/\2}", text) if "text{" in text or "rm{" in text else text


_CIRCLED = re.compile("[\u2460-\u2473]+")
_DIGITS_IN_BRACES = re.compile(r"-?\d+(?:\{\d+\}\d*)+")
"""4{2}, which LaTeX shows as 42."""


def _uncircled(match: re.Match[str]) -> str:
    """Digits in circles number choices: two of them are two."""
    return ", ".join(str(ord(character) - 0x245F) for character in match[0])


_CURRENCY_SIGNS = re.compile(r"\\(pounds|euro|texteuro|textsterling)(?![A-Za-z])\s*")
_STYLES = re.compile(
    r"\\(?:tiny|scriptsize|footnotesize|small|normalsize|large|Large|LARGE|huge|Huge|bf|bfseries|it|rm|boldmath|mathstrut|strut)(?![A-Za-z])\s*"
)
_UPRIGHT = re.compile(r"\\(?:mathrm|text|rm)\s*\{((?:[^{}]|\{[^{}]*\})*)\}(?:\^\{?-(\d)\}?)?")
_PER = re.compile(r"(?:\\[,;: ]|\s|~|\\cdot|·)+([A-Za-z]+)\^\{?-(\d)\}?")


def _with_slash(match: re.Match[str]) -> str:
    r"""Units with negative exponents as people say them: \mathrm{m\,s^{-2}} is m/s^2."""
    inside = _PER.sub(lambda m: f"/{m[1]}" + (f"^{m[2]}" if m[2] != "1" else ""), match[1])
    return match[0] if inside == match[1] or match[2] else rf"\text{{{inside}}}"


_SPLIT_UNITS = re.compile(
    r"\\(?:mathrm|text)\{\s*([A-Za-z]+)\s*\}(?:\\[,;: ]|\s|\\cdot)*\\(?:mathrm|text)\{\s*([A-Za-z]+)\s*\}\^\{?-(\d)\}?"
)


_SIZES = re.compile(r"\\(?:left|right)(?![A-Za-z])\.?|\\(?:displaystyle|limits|big|Big)\b")
_COLOUR = re.compile(r"\\(?:text)?color\s*(?:\[[^][]*\])?\{[A-Za-z!\d]*\}")
_UNIT_FRACTION = re.compile(
    r"\\[dt]?frac\s*\{\s*\\(?:text|mathrm)\{([^{}]*)\}\s*\}\s*\{\s*\\(?:text|mathrm)\{([^{}]*)\}\s*\}"
)
_END = r"(?:\\[a-z]+|[^\[\]()A-Za-z,;\\])*(?:[\d}]|\\infty|\\pi|∞|π)\s*"
_OUTWARD = re.compile(rf"([\[\]])({_END}[,;]{_END})([\[\]])")


def _inward(interval: re.Match[str]) -> str:
    """]1, 2[ is another way to write (1, 2)."""
    return ("[" if interval[1] == "[" else "(") + interval[2] + ("]" if interval[3] == "]" else ")")


def _unbroken(text: str) -> str:
    """Restore backslashes that were lost on the way."""
    if _CONTROL.search(text):
        for broken, whole in _BROKEN.items():
            text = text.replace(broken, whole)
    return text


def _repair(text: str) -> str:
    """Undo doubled backslashes, and LaTeX's ways to write a thousands comma."""
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)
    return _THOUSANDS.sub(",", text)


def _unwrapped(text: str) -> str:
    previous = None
    while previous != text:
        previous = text
        text = _unwrap(text).strip()
    return text


_LAST = (*(right for _, right in _QUOTES), "}", ".", ",", ";", ":", "\\")
"""The ends of what `_unwrap` changes."""


def _unwrap(text: str) -> str:
    if not text.endswith(_LAST):
        return text
    for left, right in _QUOTES:
        inside = text[len(left) : -len(right)]
        if len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right) and left not in inside:
            return inside
    if (match := _WRAPPERS.match(text)) and _balanced(match[1]):
        return match[1]
    if text.endswith((".", ",", ";", ":", "\\")) and not text.endswith("..."):
        return text[:-1]
    return text


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


_SPACE = re.compile(r"((?<=\d)\s+(?=\d)|(?<=\d,)\s+(?=\d{3}(?!\d)))|[\s$]+")


_WORD = re.compile("[A-Za-z]{3}")
_LETTER = re.compile(r"\([A-Za-z]\)")
_TEXT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{([^{}]*)\}")


@lru_cache(MAX_REMEMBERED)
def canonical(tidied: str) -> str:
    """For comparison as text: no case where the answer is words, and no spaces but between numbers: "2 3" is not 23."""
    text = tidied
    if _WORDS.fullmatch(text) and _WORD.search(text):
        text = text.lower()
    if len(text) == 3 and _LETTER.fullmatch(text):
        text = text.strip("()")
    if "\\" in text:
        text = _TEXT.sub(r"\1", text)
    return _SPACE.sub(lambda match: " " if match[1] else "", text)
