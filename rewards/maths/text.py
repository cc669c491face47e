"""Answers as text: what LaTeX and habit put around them is taken off, what they say stays."""

import re

MAX_ANSWER_CHARACTERS = 2000

_UNITS = (
    "dollars? cents? euros? pounds? percent degrees? hours? minutes? seconds? days? weeks? months? years? "
    "meters? metres? centimeters? kilometers? miles? feet foot inches inch yards? grams? kilograms? ounces? liters? "
    "square cubic units? km cm mm kg mph ml"
).split()
_WRAPPERS = re.compile(r"^\\(?:text|textbf|textit|mathrm|mathbf|mbox|boxed|fbox)\s*\{(.*)\}$", re.DOTALL)
_SPACES = re.compile(r"\\[,;:! ]|\\q?quad|~|\s+")
_CURRENCY = re.compile(r"^([+-]?)\s*(?:\\?\$|€|£)\s*(?=[\d.+-])")
_UNIT = re.compile(rf"(?<=[\d}}])\s*(?:\\text\s*\{{\s*)?((?:(?:{'|'.join(_UNITS)})\b\.?\s*)+)\}}?$", re.IGNORECASE)
_DEGREES = re.compile(r"\^\{?\\circ\}?$|°$")


def tidy(answer: str) -> str:
    """Strip math delimiters, text wrappers, spacing commands, a final full stop; unify sizes of brackets and fractions."""
    text = answer[:MAX_ANSWER_CHARACTERS].strip()
    previous = None
    while previous != text:
        previous = text
        text = _unwrap(text).strip()
    text = text.replace("\\left", "").replace("\\right", "").replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    text = re.sub(r"\\(?:displaystyle|limits|big|Big)\b", "", text)
    return _SPACES.sub(" ", text).strip()


def _unwrap(text: str) -> str:
    for left, right in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`")):
        inside = text[len(left) : -len(right)]
        if len(text) > len(left) + len(right) and text.startswith(left) and text.endswith(right) and left not in inside:
            return inside
    if (match := _WRAPPERS.match(text)) and _balanced(match[1]):
        return match[1]
    if text.endswith((".", ",", ";")) and not text.endswith("..."):
        return text[:-1]
    return text


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0


def bare_number(answer: str) -> str:
    """A tidied answer without currency sign, degree sign or unit, so that the number can be read."""
    text = _CURRENCY.sub(r"\1", answer)
    text = _DEGREES.sub("", text)
    return _UNIT.sub("", text).strip()


def unit_of(answer: str) -> str:
    """The unit or currency that follows or precedes the number, in lower case and singular; "" without one."""
    if match := _UNIT.search(answer):
        return " ".join(re.sub(r"s$", "", word.strip(".")) for word in match[1].lower().split())
    if _CURRENCY.match(answer):
        return "dollar" if "$" in answer else "other currency"
    return ""


def canonical(answer: str) -> str:
    """For comparison as text: no spaces, no case where the answer is words."""
    text = tidy(answer)
    text = text.lower() if re.fullmatch(r"[A-Za-z .,'-]+", text) and len(text) > 1 else text
    text = text.strip("()") if re.fullmatch(r"\([A-Za-z]\)", text) else text
    text = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r"\1", text)
    return re.sub(r"\s+", "", text)
