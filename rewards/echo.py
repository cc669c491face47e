"""Whether an answer only repeats what the question says: "6 * 7" for "What is 6 * 7?", "x^2 - 1" for "Factor x^2 - 1"."""

import re
from math import gcd

_OPERATOR = re.compile(
    r"[-+*/^!]|\\(?:frac|dfrac|tfrac|sqrt|binom|log|ln|sin|cos|tan|cdot|times|div|sum|prod|int|lim)|\d\(|\)\("
)
_TIMES = re.compile(r"\\(?:times|cdot|ast)|[×·⋅∙]|(?<=\d)\s*x\s*(?=\d)")
_DRESS = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|[\s$`*]*\?|[\s$`{}]+")
_PI = r"(?:\s*(?:\\pi|π)\s*)?"
_FRACTION = re.compile(
    rf"[-−]?\\[dt]?frac\{{(?P<top>\d{{0,9}}){_PI}\}}\{{(?P<bottom>\d{{1,9}})\}}{_PI}|[-−]?(?P<above>\d{{0,9}}){_PI}\s?/\s?(?P<below>\d{{1,9}}){_PI}"
)
MAX_QUESTION_CHARACTERS = 20_000


def echoes(answer: str, question: str | None) -> bool:
    """Whether the answer is an expression, not yet worked out, that stands in the question just so.

    Asked only where nothing but its value makes an answer right: the gold itself may well stand in the question.

    >>> echoes("6 * 7", r"What is $6 \\times 7$?"), echoes("42", "What is 6 * 7?"), echoes("7 * 6", "What is 6 * 7?")
    (True, False, False)
    """
    if not question:
        return False
    asked = _bare(question[:MAX_QUESTION_CHARACTERS])
    if _is_worked_out(answer):
        return False
    parts = [_bare(part) for part in answer.split("=")]
    if len(parts) > 1 and re.fullmatch(r"[-\d.,/]+", parts[-1]):
        return False  # it comes to a number
    return any(_OPERATOR.search(part.lstrip("+-")) and part in asked for part in parts)


def _is_worked_out(answer: str) -> bool:
    """Whether an answer is a fraction in lowest terms, or such a part of pi; 84/2 is a calculation."""
    match = _FRACTION.fullmatch(answer.strip(" $"))
    if match is None:
        return False
    top, bottom = int(match["top"] or match["above"] or 1), int(match["bottom"] or match["below"])
    return bottom > 1 and gcd(top, bottom) == 1


def _bare(text: str) -> str:
    return _DRESS.sub("", _TIMES.sub("*", text))
