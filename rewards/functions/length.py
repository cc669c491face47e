"""Rewards that depend on the length of the response, in tokens."""

import math
from collections.abc import Sequence

from rewards.errors import UserError
from rewards.functions.correctness import verdict
from rewards.outcome import UNDECIDED, Score
from rewards.registry import reward_fn
from rewards.tags import Tags


def tokens_of(response: str, response_ids: Sequence[int]) -> int | None:
    """Length of the response in tokens; None where its tokens are not known (text from a file, say)."""
    return len(response_ids) if len(response_ids) or not response else None


def check_tokens(function: str, name: str, value: object) -> int:
    """`value` as a positive number of tokens.

    Raises:
        UserError: it is missing, no whole number, or below 1.
    """
    if value is None:
        raise UserError(
            f"{function} needs {name}, a number of tokens; for example "
            f'--reward_options \'{{"{function}": {{"{name}": 512}}}}\''
        )
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(f"{function}: {name} must be a whole number of tokens from 1, not {value!r}")
    return value


def check_number(function: str, name: str, value: object) -> float:
    """`value` as a finite number.

    Raises:
        UserError: it is none.
    """
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise UserError(f"{function}: {name} must be a finite number, not {value!r}")
    return float(value)


@reward_fn("length_penalty")
def length_penalty(
    response: str,
    response_ids: Sequence[int],
    finished: bool = True,
    max_tokens: int | None = None,
    max_penalty: float = -1.0,
) -> float | None:
    """From 0 for an empty response down to `max_penalty` at `max_tokens` tokens, in proportion; truncated: `max_penalty`.

    Does not apply where the tokens of the response are not known.

    Args:
        response: the text.
        response_ids: its tokens.
        finished: whether it ended by itself.
        max_tokens: length limit of a response.
        max_penalty: at most 0.

    Raises:
        UserError: `max_tokens` is missing or not positive, or `max_penalty` is above 0.

    >>> length_penalty("...", range(128), max_tokens=512)
    -0.25
    >>> length_penalty("...", range(128), finished=False, max_tokens=512)
    -1.0
    """
    limit = check_tokens("length_penalty", "max_tokens", max_tokens)
    if check_number("length_penalty", "max_penalty", max_penalty) > 0:
        raise UserError(f"length_penalty: max_penalty must be at most 0, not {max_penalty}; a penalty takes away")
    if not finished:
        return max_penalty
    length = tokens_of(response, response_ids)
    return None if length is None else max_penalty * min(1.0, length / limit)


@reward_fn("soft_overlong_fn")
def soft_overlong_fn(
    response: str,
    response_ids: Sequence[int],
    finished: bool = True,
    max_tokens: int | None = None,
    cache_tokens: int | None = None,
) -> float | None:
    """0 up to `max_tokens - cache_tokens`, then down to -1 at `max_tokens` in a straight line; -1 beyond, or truncated.

    A truncated response is never better off than any shorter one: it gets -1 whatever its length. Does not apply where
    the tokens of the response are not known.

    Args:
        response: the text.
        response_ids: its tokens.
        finished: whether it ended by itself.
        max_tokens: length limit of a response.
        cache_tokens: width of the zone in which the punishment grows.

    Raises:
        UserError: a limit is missing or not positive, or `cache_tokens` exceeds `max_tokens`.

    >>> [soft_overlong_fn("...", range(n), max_tokens=100, cache_tokens=20) for n in (80, 90, 100, 101)]
    [0.0, -0.5, -1.0, -1.0]
    >>> soft_overlong_fn("...", range(50), finished=False, max_tokens=100, cache_tokens=20)
    -1.0
    """
    limit = check_tokens("soft_overlong_fn", "max_tokens", max_tokens)
    cache = check_tokens("soft_overlong_fn", "cache_tokens", cache_tokens)
    if cache > limit:
        raise UserError(f"soft_overlong_fn: cache_tokens ({cache}) must be at most max_tokens ({limit})")
    if not finished:
        return -1.0
    length = tokens_of(response, response_ids)
    if length is None:
        return None
    over = length - (limit - cache)
    return -min(1.0, over / cache) if over > 0 else 0.0


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
