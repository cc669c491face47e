"""Whether two answers say the same, in stages, cheapest first.

1. text: alike but for spaces, case of words and LaTeX dress.
2. number: both are plain numbers; exact.
3. time, choice: times of day, and letters of multiple-choice questions.
4. structure, expression: both are read into syntax trees and compared.
5. fallback: math-verify, in a killable process, for a gold that we can't read.

Each stage decides or passes on. What no stage accepts is not the same.
"""

import re
from functools import lru_cache

from rewards.maths import fallback
from rewards.maths.compare import same_answer
from rewards.maths.errors import UnreadableError
from rewards.maths.exact import parse_number
from rewards.maths.parser import parse
from rewards.maths.syntax import Measured, Node, is_expression
from rewards.maths.text import canonical, choice_of, tidy

_TIME = re.compile(r"\d{1,2}:[0-5]\d(?:\s?[aApP]\.?[mM]\.?)?")
"""1:30 and 12:00 are times; 5:8 is a ratio."""

_CURRENCY = re.compile(r"[-+]?\s*\\?([$€£])\s*[\d.][\d.,]*(?:\s*(?:million|billion))?$|[-+]?[\d.][\d.,]*\s*\\?([$€£])$")
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound"}


def equivalent(answer: str, gold: str) -> tuple[bool, str]:
    """Whether two answers say the same, and the stage that decided: text, number, time, choice, expression,
    structure, fallback, or none."""
    answer, gold = tidy(answer), tidy(gold)
    if not answer or not gold:
        return False, "empty"
    if canonical(answer) == canonical(gold):
        return not _contradicts_itself(answer), "text"
    numbers = parse_number(answer), parse_number(gold)
    if numbers[0] is not None and numbers[0] == numbers[1]:
        return True, "number"
    if numbers[0] is not None and numbers[1] is not None and _plain(answer) and _plain(gold):
        return False, "number"
    if _TIME.fullmatch(gold) and _TIME.fullmatch(answer):
        return canonical(answer).lstrip("0") == canonical(gold).lstrip("0"), "time"
    if len(gold) <= 3 and (choice := choice_of(gold)) and choice_of(answer) is not None:
        return choice_of(answer) == choice, "choice"
    return _as_trees(answer, gold)


def readable(text: str) -> bool:
    """Whether a text can be read as mathematics or as plain words."""
    text = tidy(text)
    return parse_number(text) is not None or tree(text) is not None


def _plain(text: str) -> bool:
    """A whole number or fraction: nothing that rounding or a percent sign could explain."""
    return "%" not in text and "." not in text


def _contradicts_itself(text: str) -> bool:
    """Equal as text is equal, unless the text says that 41 = 42."""
    if text.count("=") < 1:
        return False
    node = tree(text)
    return node is not None and not same_answer(node, node)


def _as_trees(answer: str, gold: str) -> tuple[bool, str]:
    left, right = tree(answer), tree(gold)
    if right is None and fallback.applies(gold):
        return fallback.verify(answer, gold) is True, "fallback"
    if left is None or right is None:
        return False, "none"
    stage = "expression" if is_expression(left) and is_expression(right) else "structure"
    return same_answer(left, right), stage


@lru_cache(maxsize=4096)
def tree(tidied: str) -> Node | None:
    """The syntax tree of a text, None if it has none."""
    currency = _CURRENCY.match(tidied)
    try:
        return Measured(parse(tidied), _CURRENCIES[currency[1] or currency[2]]) if currency else parse(tidied)
    except (UnreadableError, RecursionError):  # the caller may have used up most of the stack
        return None
