"""`grade`: is this response right? And why.

Cheapest comparison first; each one either decides or passes on. What no stage accepts is wrong: nothing is paid for a
doubt. Nothing that a model wrote is ever evaluated; numbers are read by `rewards.maths.exact`.

>>> grade("<think>6 times 7</think><answer>42</answer>", "42", tags=Tags.default()).status
'correct'
>>> grade("so it is \\\\boxed{1,234.0}", "1234").stage
'number'
>>> grade("41 or 42, who knows: \\\\boxed{41 or 42}", "42").status
'wrong'
"""

import re
import time

from rewards.extract import extract
from rewards.maths.exact import parse_number
from rewards.maths.text import bare_number, canonical, tidy, unit_of
from rewards.outcome import Outcome
from rewards.tags import Tags

_OPEN, _CLOSE = "([{", ")]}"
# "x = 5" for a gold of 5: one letter may name the answer; "41 = 42" says something else.
_NAMED = re.compile(r"^[A-Za-z]\s*=\s*([^=]+)$")


def grade(response: str, gold: str | None, *, tags: Tags | None = None, question: str | None = None) -> Outcome:
    """Compare a response's answer with the right one.

    Args:
        response: what the model wrote.
        gold: the right answer.
        tags: the template's tags; the answer then counts only between the answer tags.
        question: the problem; no stage looks at it yet.
    """
    start = time.perf_counter()
    answer = None
    if gold is None or not check_gold(gold):
        status, stage = "bad_gold", "gold"
    elif (answer := extract(response, tags)) is None:
        status, stage = "no_answer", "extract"
    else:
        same, stage = equivalent(answer, gold)
        status = "correct" if same else "wrong"
    return Outcome(status, answer, stage, time.perf_counter() - start)  # type: ignore[arg-type]


def check_gold(gold: str) -> bool:
    """Whether a response could be right at all: the right answer is there, and equals itself."""
    return bool(tidy(gold).strip("$ ")) and equivalent(gold, gold)[0]


def gold_from_gsm8k(solution: str) -> str:
    """The right answer in GSM8K's own format: what follows `####`."""
    return solution.rsplit("####", 1)[-1].strip()


def equivalent(answer: str, gold: str) -> tuple[bool, str]:
    """Whether two answers say the same, and the stage that decided."""
    answer, gold = tidy(answer), tidy(gold)
    if not answer:
        return False, "empty"
    if "=" not in gold and (named := _NAMED.match(answer)):
        answer = named[1]
    if canonical(answer) == canonical(gold):
        return True, "text"
    numbers = _numbers(answer), _numbers(gold)
    if numbers[0] is not None and numbers[1] is not None:
        return numbers[0] == numbers[1] and _units_agree(answer, gold), "number"
    parts = _split(answer), _split(gold)
    if parts[0] and parts[1]:
        return _same_parts(parts[0], parts[1]), "structure"
    return False, "none"


def _numbers(text: str) -> object:
    return parse_number(bare_number(text))


def _units_agree(answer: str, gold: str) -> bool:
    """A unit that both name must be the same; a unit that only one names is taken for granted."""
    units = unit_of(answer), unit_of(gold)
    return not (units[0] and units[1]) or units[0] == units[1]


def _split(text: str) -> tuple[str, str, list[str]] | None:
    """A bracketed or bare list with at least two parts: opening bracket, closing bracket, parts."""
    opening = closing = ""
    text = text.replace("\\{", "{").replace("\\}", "}")
    if len(text) > 2 and text[0] in _OPEN and text[-1] in _CLOSE:
        opening, closing, text = text[0], text[-1], text[1:-1]
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return (opening, closing, parts) if len(parts) > 1 else None


def _same_parts(answer: tuple[str, str, list[str]], gold: tuple[str, str, list[str]]) -> bool:
    """Ordered where brackets say so, any order for sets and bare lists; brackets must agree where both have them."""
    (a_open, a_close, a), (g_open, g_close, g) = answer, gold
    if len(a) != len(g) or any(re.search(r"\bor\b|\bnot\b", part) for part in a):
        return False
    if (a_open or g_open) and (a_open, a_close) != (g_open, g_close):
        return False
    if g_open in ("", "{"):
        return _match_any_order(a, g)
    return all(equivalent(x, y)[0] for x, y in zip(a, g, strict=True))


def _match_any_order(a: list[str], g: list[str]) -> bool:
    if len(a) > 20:
        return all(equivalent(x, y)[0] for x, y in zip(a, g, strict=True))
    left = list(g)
    for part in a:
        match = next((other for other in left if equivalent(part, other)[0]), None)
        if match is None:
            return False
        left.remove(match)
    return True
