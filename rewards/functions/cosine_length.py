"""`cosine_length_fn`: the cosine length-scaled reward (Yeo et al. 2025, arXiv 2502.03373)."""

import math
from collections.abc import Sequence

from rewards.errors import UserError
from rewards.functions.lengths import check_number, check_tokens, tokens_of
from rewards.functions.verdict import verdict
from rewards.outcome import UNDECIDED, Score
from rewards.registry import reward_fn
from rewards.tags import Tags


@reward_fn("cosine_length_fn")
def cosine_length_fn(
    response: str,
    gold: str | None,
    response_ids: Sequence[int],
    finished: bool = True,
    tags: Tags | None = None,
    question: str | None = None,
    max_tokens: int | None = None,
    correct_short: float = 2.0,
    correct_long: float = 1.0,
    wrong_short: float = -10.0,
    wrong_long: float = 0.0,
    exceed_penalty: float = -10.0,
) -> Score:
    """Right and short pays best; wrong and short costs most, so that a doubt is worth further thought.

    Along half a cosine wave the reward goes from its `short` value at length 0 to its `long` value at `max_tokens`. A
    response that is truncated, or as long as `max_tokens`, gets `exceed_penalty`. The defaults are the paper's. Does not
    apply where the gold can't be parsed, or the tokens of the response are not known.

    Args:
        response: the text.
        gold: the right answer.
        response_ids: the tokens of the response.
        finished: whether it ended by itself.
        tags: the template's tags.
        question: the problem.
        max_tokens: length limit of a response.
        correct_short: for a right answer in no tokens.
        correct_long: for a right answer in `max_tokens` tokens.
        wrong_short: for a wrong answer in no tokens.
        wrong_long: for a wrong answer in `max_tokens` tokens.
        exceed_penalty: for a truncated response; at most all the others, or truncation would pay.

    Raises:
        UserError: `max_tokens` is missing or not positive, or the values are in no such order.

    >>> right, wrong = "<think>6 * 7</think><answer>42</answer>", "<think>6 * 7</think><answer>41</answer>"
    >>> [round(cosine_length_fn(right, "42", range(n), max_tokens=100).value, 3) for n in (50, 75, 100)]
    [1.5, 1.146, -10.0]
    >>> [round(cosine_length_fn(wrong, "42", range(n), max_tokens=100).value, 3) for n in (50, 75, 100)]
    [-5.0, -1.464, -10.0]
    """
    limit = check_tokens("cosine_length_fn", "max_tokens", max_tokens)
    _check_order(correct_short, correct_long, wrong_long, wrong_short, exceed_penalty)
    outcome = verdict(response, gold, tags, question)
    length = tokens_of(response, response_ids)
    if outcome.status in UNDECIDED or (finished and length is None):
        return Score(None, outcome)
    if not finished or length is None or length >= limit:
        return Score(exceed_penalty, outcome)
    short, long = (correct_short, correct_long) if outcome.correct else (wrong_short, wrong_long)
    return Score(long + (short - long) * (1 + math.cos(math.pi * length / limit)) / 2, outcome)


def _check_order(correct_short: float, correct_long: float, wrong_long: float, wrong_short: float, cut: float) -> None:
    values = {
        "correct_short": correct_short,
        "correct_long": correct_long,
        "wrong_long": wrong_long,
        "wrong_short": wrong_short,
        "exceed_penalty": cut,
    }
    ordered = [check_number("cosine_length_fn", name, value) for name, value in values.items()]
    if ordered != sorted(ordered, reverse=True):
        raise UserError(f"cosine_length_fn: must fall in this order, {' >= '.join(values)}; given {ordered}")
