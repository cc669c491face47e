"""`judged_reward_fn`: rules first, and a judge where they end: right answers that are prose."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from rewards.functions.correctness import verdict
from rewards.grade import answer_of_gold
from rewards.judge import Judge, Opinion, addresses_judge
from rewards.maths.equivalence import tree
from rewards.maths.limits import Budget, OutOfWorkError
from rewards.maths.normalise import normalise
from rewards.maths.syntax import Words
from rewards.outcome import Outcome, Score
from rewards.registry import reward_fn
from rewards.tags import Tags

STAGE = "judge"
"""The stage of a verdict that the judge gave, and of an answer that was refused before it was asked."""
_FORMULA = re.compile(r"\$[^$]*\$|\\\(.*?\\\)|\\[a-zA-Z]+", re.DOTALL)
_WORD = re.compile(r"[^\W\d_]{3,}")


@reward_fn("judged_reward_fn")
def judged_reward_fn(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    url: str = "",
    model: str = "",
    journal: str = "",
    key_env: str = "OPENAI_API_KEY",
    max_calls: int = 1000,
    max_seconds: float = 3600.0,
    timeout_s: float = 8.0,
    request: Mapping[str, Any] | None = None,
) -> Score:
    """1 for a right answer, 0 for a wrong one: `math_reward_fn`, with a second opinion where the right answer is prose.

    What the rules take for right is right. What they don't, for a right answer of several words that is no mathematics, is asked of a
    model (`rewards.judge.Judge` has the options); url, model and journal must be given. `outcome.stage` is then `judge`, and the
    components say what happened: `judged` (the judge decided), `refused` (the answer addressed it), `unheard` (it did not say, so that
    the rules' verdict stands).

    >>> is_prose("the angles are equal"), is_prose("10 square meters"), is_prose("42"), is_prose("blue")
    (True, False, False, False)
    """
    options = {"temperature": 0, "max_tokens": 16} if request is None else dict(request)
    judge = _judge(url, model, journal, key_env, max_calls, max_seconds, timeout_s, json.dumps(options, sort_keys=True))
    outcome = verdict(response, gold, tags, question)
    if (
        outcome.status != "wrong"
        or outcome.answer is None
        or gold is None
        or not is_prose(right := answer_of_gold(gold))
    ):
        value = None if outcome.status in ("bad_gold", "timed_out", "error") else float(outcome.correct)
        return Score(value, outcome, _components())
    if addresses_judge(outcome.answer, right):
        return Score(
            0.0, replace(outcome, stage=STAGE, message="the answer addresses the judge"), _components(refused=1.0)
        )
    return _second(judge.opinion(question, right, outcome.answer), outcome)


def _second(opinion: Opinion, outcome: Outcome) -> Score:
    if opinion.same is None:
        return Score(
            0.0, replace(outcome, message=f"the judge was not heard: {opinion.message}"), _components(unheard=1.0)
        )
    status = "correct" if opinion.same else "wrong"
    return Score(float(opinion.same), replace(outcome, status=status, stage=STAGE), _components(judged=1.0))  # type: ignore[arg-type]


def _components(judged: float = 0.0, refused: float = 0.0, unheard: float = 0.0) -> dict[str, float]:
    return {"judged": judged, "refused": refused, "unheard": unheard}


@cache
def _judge(
    url: str, model: str, journal: str, key_env: str, max_calls: int, max_seconds: float, timeout_s: float, request: str
) -> Judge:
    """One for a process and its settings, with its connection."""
    return Judge(url, model, journal, key_env, max_calls, max_seconds, timeout_s, json.loads(request))


@cache
def is_prose(gold: str) -> bool:
    """True for a right answer of several words that the rules don't read as mathematics."""
    if len(_WORD.findall(_FORMULA.sub(" ", gold))) < 2:
        return False
    try:
        with Budget():
            node = tree(normalise(gold))
    except OutOfWorkError:
        return False
    return node is None or isinstance(node, Words)
