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

import time
from functools import lru_cache

from rewards.echo import echoes
from rewards.extract import extract, last_boxes
from rewards.maths import Form, equivalent, left_undone, prepare
from rewards.maths.stack import anywhere
from rewards.outcome import Outcome
from rewards.tags import Tags

MAX_GOLD_CHARACTERS = 20_000
TOO_MUCH_WORK = "comparing it with the right answer is more work than a verdict may take"


@anywhere
def grade(
    response: str,
    gold: str | None,
    *,
    tags: Tags | None = None,
    question: str | None = None,
    form: Form = "strict",
) -> Outcome:
    """Compare a response's answer with the right one.

    Args:
        response: what the model wrote.
        gold: the right answer.
        tags: the template's tags; the answer then counts only between the answer tags.
        question: the problem; an answer that only repeats a calculation from it is wrong.
        form: strict: a right answer leaves no more undone than the gold (see `rewards.maths.form`), which is what training
            should pay for. equivalent: it is equal to the gold.

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
        if same and stage in ("number", "expression", "structure"):
            if echoes(answer, question):
                same, stage, message = False, "echo", "a calculation of the question, not worked out"
            elif form == "strict" and (left := left_undone(answer, answer_of_gold(gold))):
                same, stage, message = False, "form", f"equal, but left undone: {left}"
        status = "correct" if same else "timed_out" if stage == "undecided" else "wrong"
        message = TOO_MUCH_WORK if stage == "budget" else message
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
