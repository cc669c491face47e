"""Whether two answers say the same, in stages, cheapest first.

1. text: alike but for spaces, case of words and LaTeX dress.
2. number: both are plain numbers; exact.
3. time, choice: times of day and dates, and letters of multiple-choice questions.
4. structure, expression: both are read into syntax trees and compared.
5. fallback: math-verify, in a killable process, for a gold that we can't read.

Each stage decides or passes on. What no stage accepts is not the same.
"""

import re
from functools import lru_cache

from rewards.maths import fallback
from rewards.maths.choices import choice
from rewards.maths.compare import same_answer
from rewards.maths.dates import clock, date, same_clock, same_date
from rewards.maths.errors import UnreadableError
from rewards.maths.exact import parse_number
from rewards.maths.parser import parse
from rewards.maths.syntax import Measured, Node, is_expression, symbols
from rewards.maths.text import canonical, tidy

_CURRENCY = re.compile(r"[-+]?\s*\\?([$€£])\s*[\d.][\d.,]*(?:\s*(?:million|billion))?$|[-+]?[\d.][\d.,]*\s*\\?([$€£])$")
_CURRENCIES = {"$": "dollar", "€": "euro", "£": "pound"}
_UNIT_LETTER = re.compile(
    r"(.*[\d)}])\s+((?:[msghlLNJWVAK]|(?:mm|cm|dm|km|m)\^\{?[23]\}?)(?:/(?:s|h|min|m|kg))?(?:\^\{?[23]\}?)?)"
)
"""A unit without \\text, which may as well be a variable: 5 m, 10 m/s."""

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LETTERS = re.compile(r"[A-H](?:\s*(?:,|;|and|&)?\s*[A-H])*")
"""Several choices."""


def equivalent(answer: str, gold: str) -> tuple[bool, str]:
    """Whether two answers say the same, and the stage that decided: text, number, time, choice, expression,
    structure, fallback, undecided (nobody could tell in time), or none."""
    answer, gold = tidy(answer), tidy(gold)
    if not answer or not gold:
        return False, "empty"
    if answer.isdigit() and gold.isdigit() and answer.isascii() and gold.isascii():
        return (True, "text") if answer == gold else (answer.lstrip("0") == gold.lstrip("0"), "number")
    if canonical(answer) == canonical(gold):
        return not _contradicts_itself(answer), "text"
    numbers = parse_number(answer), parse_number(gold)
    if numbers[0] is not None and numbers[0] == numbers[1]:
        return True, "number"
    if numbers[0] is not None and numbers[1] is not None and _plain(answer) and _plain(gold):
        return False, "number"
    if numbers[1] is None and (decided := _same_time(answer, gold)) is not None:
        return decided, "time"
    if (decided := _same_choice(answer, gold)) is not None:
        return decided, "choice"
    return _as_trees(answer, gold)


def readable(text: str) -> bool:
    """Whether a text can be read as mathematics or as plain words."""
    text = tidy(text)
    return parse_number(text) is not None or tree(text) is not None


def prepare(gold: str) -> None:
    """Start what it takes to judge answers to this gold, if that is more than what is here."""
    if fallback.applies(text := tidy(gold)) and not readable(text):
        fallback.warm()


def _plain(text: str) -> bool:
    """A whole number or fraction: nothing that rounding or a percent sign could explain."""
    return "%" not in text and "." not in text


def _contradicts_itself(text: str) -> bool:
    """Equal as text is equal, unless the text says that 41 = 42."""
    if text.count("=") < 1:
        return False
    node = tree(text)
    return node is not None and not same_answer(node, node)


def _same_time(answer: str, gold: str) -> bool | None:
    """Compared as times or dates; None if the gold is none."""
    if (right := clock(gold)) is not None:
        time = clock(answer)
        return None if time is None else same_clock(time, right)
    if (day := date(gold)) is not None:
        other = date(answer)
        return other is not None and same_date(other, day)
    return None


def _same_choice(answer: str, gold: str) -> bool | None:
    """Compared by the letters of a choice, or by what stands beside them; None where no letter decides."""
    chosen, right = choice(answer), choice(gold)
    if chosen and right:
        if chosen[0] != right[0] or not (chosen[1] and right[1]):
            return chosen[0] == right[0]
        return equivalent(chosen[1], right[1])[0]
    if _LETTERS.fullmatch(gold) and _LETTERS.fullmatch(answer):
        return sorted(re.findall("[A-H]", answer)) == sorted(re.findall("[A-H]", gold))
    for one, other in ((chosen, gold), (right, answer)):
        if one and one[1] and not one[1].startswith(("(", "\\", "+", "-", "=")):
            same = equivalent(one[1], other) if one is chosen else equivalent(other, one[1])
            return True if same[0] else None
    return None


def _as_trees(answer: str, gold: str) -> tuple[bool, str]:
    left, right = tree(answer), tree(gold)
    if right is None and fallback.applies(gold):
        same = fallback.verify(answer, gold)
        return same is True, "undecided" if same is None else "fallback"
    if left is None or right is None:
        return False, "none"
    stage = "expression" if is_expression(left) and is_expression(right) else "structure"
    if same_answer(left, right):
        return True, stage
    measured = _UNIT_LETTER.fullmatch(answer)
    if measured and not symbols(right) and is_expression(right.value if isinstance(right, Measured) else right):
        left = tree(f"{measured[1]} \\text{{ {measured[2]}}}")
        return left is not None and same_answer(left, right), "structure"
    return False, stage


@lru_cache(maxsize=4096)
def tree(tidied: str) -> Node | None:
    """The syntax tree of a text, None if it has none."""
    if _ISO_DATE.fullmatch(tidied):
        return None  # 2020-01-05 is not 2014
    currency = _CURRENCY.match(tidied)
    try:
        return Measured(parse(tidied), _CURRENCIES[currency[1] or currency[2]]) if currency else parse(tidied)
    except (UnreadableError, RecursionError):  # the caller may have used up most of the stack
        return None
