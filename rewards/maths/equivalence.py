"""`equivalent`: compare two answers in stages, cheapest first.

1. text: alike but for spaces, case of words and LaTeX dress.
2. number: both are plain numbers; exact.
3. time, choice: times of day and dates, and letters of multiple-choice questions.
4. structure, expression: both are read into syntax trees and compared.
5. fallback: math-verify, in a killable process, for a gold that we can't read.

Each stage decides or passes on. What no stage accepts is not the same, nor what takes more than the budget of work (`limits`).
"""

import re
from functools import lru_cache

from rewards.maths import fallback
from rewards.maths.compare import same_answer
from rewards.maths.cursor import STEPS_OF_A_TOKEN
from rewards.maths.form import undone
from rewards.maths.limits import Budget, OutOfWorkError, UnreadableError, spend
from rewards.maths.literals import (
    choice,
    clock,
    date,
    decimal_comma,
    parse_number,
    remainder,
    same_clock,
    same_date,
    same_letter,
)
from rewards.maths.normalise import canonical, normalise
from rewards.maths.numerals import read_number
from rewards.maths.parser import parse
from rewards.maths.parts import angle, in_order, parts
from rewards.maths.simplify import simplify
from rewards.maths.stack import anywhere
from rewards.maths.syntax import Node, Quantity, is_expression, symbols
from rewards.maths.units import CURRENCIES, CURRENCY, UNIT_LETTER, unit_name
from rewards.maths.vocabulary import NO_LIMIT

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_WHOLE = re.compile(r"[0-9]{1,15}")
_DECIMAL = re.compile(r"[-+]?\d+(?:\.\d+)?")
_AMOUNT = re.compile(
    r"(?P<currency>\$ ?)?(?P<whole>[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,15})(?P<places>\.[0-9]{1,15})?(?: ?(?P<percent>\\?%)| (?P<unit>[A-Za-z]{3,20}))?"
)
_LETTERS = re.compile(r"[A-H](?:\s*(?:,|;|and|&)?\s*[A-H])*")
"""Several choices."""
_LETTER_R = re.compile(r"(?:[A-Za-z]\w*\s*=\s*)?R")
"""A radius, say; the real numbers are written otherwise."""


@anywhere
def equivalent(answer: str, gold: str) -> tuple[bool, str]:
    """Compare two answers; returns the verdict and the stage that decided.

    The stage is text, number, time, choice, expression, structure, fallback, undecided (no verdict in time), empty, none
    (one of the two can't be read), or budget (comparing them is more work than a verdict may take).
    """
    try:
        with Budget():
            return _compared(answer, gold)
    except OutOfWorkError:
        return False, "budget"


def _compared(answer: str, gold: str) -> tuple[bool, str]:
    answer, gold = normalise(answer), normalise(gold)
    if not answer or not gold:
        return False, "empty"
    if gold.isdigit() and gold.isascii() and (decided := _same_whole(answer, gold)) is not None:
        return (True, "text") if answer == gold else (decided, "number")
    if canonical(answer) == canonical(gold):
        return not _contradicts_itself(answer), "text"
    numbers = parse_number(answer), parse_number(gold)
    if numbers[0] is not None and numbers[0] == numbers[1]:
        return True, "number"
    if numbers[0] is not None and numbers[1] is not None and _plain(gold):
        whole = numbers[1].denominator == 1  # a whole number is meant exactly, however many nines an answer has
        if _plain(answer) or whole and _DECIMAL.fullmatch(answer):
            return False, "number"
    if numbers[1] is None and (decided := _same_time(answer, gold)) is not None:
        return decided, "time"
    if (decided := _same_by_convention(answer, gold)) is not None:
        return decided, "text"
    if (decided := _same_parts(answer, gold)) is not None:
        return decided, "structure"
    if (decided := _same_choice(answer, gold)) is not None:
        return decided, "choice"
    return _as_trees(answer, gold)


def _same_whole(answer: str, gold: str) -> bool | None:
    """Compared with a whole number, where the answer is a plain amount: 42, 1,234.0, $5, 5 hours or 5%; None for any other answer.

    A unit goes without saying where the gold has none, and so does a percent sign, which is a hundredth too (and only that where
    the gold is 1). The trees of both would say the same, far more slowly, and this is most of what a training run on word problems
    grades.
    """
    if answer.isdigit() and answer.isascii():
        return answer.lstrip("0") == gold.lstrip("0")
    if (amount := _AMOUNT.fullmatch(answer)) is None:
        return None
    currency, whole, places, percent, unit = amount.groups()
    if unit and unit_name(unit) in ("", "degree", "radian", "percent") or currency and (unit or percent):
        return None  # words, numbers that are written as units, and what means nothing
    if places and places.strip(".0"):
        return False
    said, right = int(whole.replace(",", "")), int(gold)
    return said == 100 * right or said == right > 1 if percent else said == right


@anywhere
def left_undone(answer: str, gold: str) -> str:
    """What an answer that is equal to the gold leaves undone and the gold does not, in words; "" if there is nothing."""
    try:
        with Budget():
            return _left_undone(normalise(answer), normalise(gold))
    except OutOfWorkError:
        return "more than a verdict has time for"


def _left_undone(answer: str, gold: str) -> str:
    if _DECIMAL.fullmatch(answer):
        return ""
    asked, given = parts(gold), parts(answer)
    if asked is not None or given is not None:
        pairs = zip(given or in_order(answer), asked or in_order(gold), strict=False)
        return next((left for a, g in pairs if (left := _left_undone(a, g))), "")
    node, right = tree(answer), tree(gold)
    short = None if node is None else simplify(node)
    return "" if short is None or right is None else undone(short, right)


@anywhere
def readable(text: str) -> bool:
    """True where a text can be read as mathematics or as plain words."""
    text = normalise(text)
    return parse_number(text) is not None or _read(text)[0] is not None


def prepare(gold: str) -> None:
    """Start the fallback process if answers to this gold will need it."""
    if fallback.applies(text := normalise(gold)) and not readable(text):
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
        if time is None or _may_be_ratio(gold, right) and _may_be_ratio(answer, time):
            return None  # 6:20 for 3:10
        return same_clock(time, right)
    if (day := date(gold)) is not None:
        other = date(answer)
        return other is not None and same_date(other, day)
    return None


def _may_be_ratio(text: str, time: tuple[int, bool]) -> bool:
    """3:10 may be a time of day or a ratio; 3:30 p.m., 03:30 and 3:00 are times."""
    parts = text.split(":")
    return len(parts) == 2 and all(p.strip().isdigit() and not p.strip().startswith("0") for p in parts)


def _same_choice(answer: str, gold: str) -> bool | None:
    """Compared by the letters of a choice, or by what stands beside them; None where no letter decides."""
    chosen, right = choice(answer), choice(gold)
    if chosen and right:
        if chosen[0] != right[0] or not (chosen[1] and right[1]):
            return chosen[0] == right[0]
        return _compared(chosen[1], right[1])[0]
    if (letters := _choices(gold)) and (picked := _choices(answer)):
        return picked == letters
    for one, other in ((chosen, gold), (right, answer)):
        if one and one[1] and not one[1].startswith(("(", "\\", "+", "-", "=")):
            same = _compared(one[1], other) if one is chosen else _compared(other, one[1])
            return True if same[0] else None
    return None


def _same_by_convention(answer: str, gold: str) -> bool | None:
    """Compared as what has a notation of its own: DNE, 7 R 3, a decimal comma, a letter; None where the gold has none."""
    if _plain_words(gold) in NO_LIMIT:
        return _plain_words(answer) in NO_LIMIT
    if (right := remainder(gold)) is not None:
        return remainder(answer) == right
    if same_letter(answer, gold):
        return True
    number = parse_number(gold)
    if number is not None and number.denominator != 1 and decimal_comma(answer) == number:
        return True
    return None


def _plain_words(text: str) -> str:
    return re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text).lower().strip(" .")


def _same_parts(answer: str, gold: str) -> bool | None:
    """Compared part by part, or as names of angles; None where the gold has neither."""
    if (name := angle(gold)) and (other := angle(answer)):
        return other in (name, name[::-1])
    if _LETTER_R.fullmatch(gold):
        return bool(_LETTER_R.fullmatch(answer))
    asked, given = parts(gold), parts(answer)
    if asked is None and given is None:
        return None
    pairs = given or in_order(answer), asked or in_order(gold)
    return len(pairs[0]) == len(pairs[1]) and all(_compared(a, g)[0] for a, g in zip(*pairs, strict=True))


def _choices(text: str) -> list[str]:
    """Several letters of choices, sorted; [] for anything else, and for a name: ACD may be three choices, BAC is an angle."""
    letters = re.findall("[A-H]", text) if _LETTERS.fullmatch(text) else []
    return sorted(letters) if len(letters) < len(text) or letters == sorted(set(letters)) else []


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
    if not symbols(right) and is_expression(right.value if isinstance(right, Quantity) else right):
        left = _measured(answer)
    elif isinstance(left, Quantity) and is_expression(left.value):
        right = _measured(gold)  # 500 cm, and not the variable m
    else:
        return False, stage
    return left is not None and right is not None and same_answer(left, right), "structure"


def _measured(text: str) -> Node | None:
    """A number with a unit of one letter, that may as well be a variable, as a quantity: 5 m."""
    match = UNIT_LETTER.fullmatch(text)
    return tree(f"{match[1]} \\text{{ {match[2]}}}") if match else None


def tree(tidied: str) -> Node | None:
    """The syntax tree of a text, None if it has none.

    Raises:
        OutOfWorkError: the caller's budget is used up.
    """
    node, steps = _read(tidied)
    spend(steps)  # whether or not it had been read before: no verdict depends on what is remembered
    return node


@lru_cache(maxsize=4096)
def _read(tidied: str) -> tuple[Node | None, float]:
    """The tree, and the steps that reading took."""
    if _WHOLE.fullmatch(tidied):
        return read_number(tidied), STEPS_OF_A_TOKEN
    if _ISO_DATE.fullmatch(tidied):
        return None, 0  # 2020-01-05 is not 2014
    currency = CURRENCY.match(tidied)
    try:
        with Budget() as budget:
            node: Node = parse(tidied)
    except UnreadableError:
        return None, budget.spent
    except OutOfWorkError:
        return None, float("inf")
    return Quantity(node, CURRENCIES[currency[1] or currency[2]]) if currency else node, budget.spent
