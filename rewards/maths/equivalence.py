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
from rewards.maths.limits import Budget, OutOfWorkError, UnreadableError, spend
from rewards.maths.literals import choice, clock, date, parse_number, same_clock, same_date
from rewards.maths.normalise import canonical, normalise
from rewards.maths.parser import parse
from rewards.maths.stack import anywhere
from rewards.maths.syntax import Node, Quantity, is_expression, symbols
from rewards.maths.units import CURRENCIES, CURRENCY, UNIT_LETTER

_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LETTERS = re.compile(r"[A-H](?:\s*(?:,|;|and|&)?\s*[A-H])*")
"""Several choices."""


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
        return _compared(chosen[1], right[1])[0]
    if _LETTERS.fullmatch(gold) and _LETTERS.fullmatch(answer):
        return sorted(re.findall("[A-H]", answer)) == sorted(re.findall("[A-H]", gold))
    for one, other in ((chosen, gold), (right, answer)):
        if one and one[1] and not one[1].startswith(("(", "\\", "+", "-", "=")):
            same = _compared(one[1], other) if one is chosen else _compared(other, one[1])
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
    measured = UNIT_LETTER.fullmatch(answer)
    if measured and not symbols(right) and is_expression(right.value if isinstance(right, Quantity) else right):
        left = tree(f"{measured[1]} \\text{{ {measured[2]}}}")
        return left is not None and same_answer(left, right), "structure"
    return False, stage


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
