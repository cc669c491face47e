"""`grade`: is this response right? And why.

Cheapest comparison first; each one either decides or passes on. What no stage accepts is wrong: nothing is paid for a
doubt. Nothing that a model wrote is ever evaluated; numbers are read by `rewards.maths.literals`.

>>> grade("<think>6 times 7</think><answer>42</answer>", "42", tags=Tags.default()).status
'correct'
>>> grade("so it is \\\\boxed{1,234.0}", "1234").stage
'number'
>>> grade("41 or 42, who knows: \\\\boxed{41 or 42}", "42").status
'wrong'
"""

import re
import time
from functools import lru_cache
from math import gcd

from rewards.extract import extract, last_boxes
from rewards.maths import equivalent, prepare
from rewards.maths.stack import anywhere
from rewards.outcome import Outcome
from rewards.tags import Tags

MAX_GOLD_CHARACTERS = 20_000
TOO_MUCH_WORK = "comparing it with the right answer is more work than a verdict may take"


@anywhere
def grade(response: str, gold: str | None, *, tags: Tags | None = None, question: str | None = None) -> Outcome:
    """Compare a response's answer with the right one.

    Args:
        response: what the model wrote.
        gold: the right answer.
        tags: the template's tags; the answer then counts only between the answer tags.
        question: the problem; an answer that only repeats a calculation from it is wrong.

    Raises nothing, on any text.
    """
    start = time.perf_counter()
    answer, message = None, ""
    if not isinstance(gold, str) or not check_gold(gold):
        status, stage = "bad_gold", "gold"
    elif not isinstance(response, str):
        status, stage, message = "error", "extract", f"the response is of type {type(response).__name__}, not text"
    elif (answer := extract(response, tags)) is None:
        status, stage = "no_answer", "extract"
    else:
        same, stage = equivalent(answer, answer_of_gold(gold))
        if same and stage in ("number", "expression", "structure") and echoes(answer, question):
            same, stage = False, "echo"
        status = "correct" if same else "timed_out" if stage == "undecided" else "wrong"
        message = TOO_MUCH_WORK if stage == "budget" else ""
    return Outcome(status, answer, stage, time.perf_counter() - start, message)  # type: ignore[arg-type]


@anywhere
def check_gold(gold: str) -> bool:
    """True where a response can be right at all: the gold is there, not too long, and equal to itself."""
    return len(gold) <= MAX_GOLD_CHARACTERS and _equals_itself(gold)


@lru_cache(maxsize=4096)
def _equals_itself(gold: str) -> bool:
    answer = answer_of_gold(gold)
    prepare(answer)
    return bool(answer.strip("$ ")) and equivalent(answer, answer)[0]


@lru_cache(maxsize=4096)
def answer_of_gold(gold: str) -> str:
    """A gold may be a whole solution: what its boxes hold, or what follows `####`; else the text itself."""
    boxes = last_boxes(gold)
    return boxes if boxes is not None else gold_from_gsm8k(gold)


def gold_from_gsm8k(solution: str) -> str:
    """The right answer in GSM8K's own format: what follows `####`."""
    return solution.rsplit("####", 1)[-1].strip()


# Echoes: an answer that only repeats the question.


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
    """True for an answer that is an unevaluated expression and stands in the question as it is: "6 * 7" for "What is 6 * 7?".

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
    """True for a fraction in lowest terms, or such a multiple of pi; 84/2 is a calculation."""
    match = _FRACTION.fullmatch(answer.strip(" $"))
    if match is None:
        return False
    top, bottom = int(match["top"] or match["above"] or 1), int(match["bottom"] or match["below"])
    return bottom > 1 and gcd(top, bottom) == 1


def _bare(text: str) -> str:
    return _DRESS.sub("", _TIMES.sub("*", text))
