"""Whether an answer only repeats what the question says: "6 * 7" for "What is 6 * 7?", "x^2 - 1" for "Factor x^2 - 1"."""

import re

_OPERATOR = re.compile(r"[-+*/^!]|\\[a-z]{2,}|\d\(|\)\(")
_TIMES = re.compile(r"\\(?:times|cdot|ast)|[×·⋅∙]|(?<=\d)\s*x\s*(?=\d)")
_DRESS = re.compile(r"\\(?:left|right|displaystyle|[,;:! ])|[\s$`*]*\?|[\s$`{}]+")
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
    parts = [_bare(part) for part in answer.split("=")]
    if not _OPERATOR.search(parts[-1][1:]) and len(parts) > 1 and re.fullmatch(r"[-\d.,/]+", parts[-1]):
        return False  # it comes to a number
    return any(_OPERATOR.search(part[1:]) and part in asked for part in parts)


def _bare(text: str) -> str:
    return _DRESS.sub("", _TIMES.sub("*", text))
