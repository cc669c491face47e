"""Grading many answers: a file of them, with all processors."""

from collections import deque
from collections.abc import Iterable
from itertools import chain, islice

from rewards.errors import UserError
from rewards.grade import grade
from rewards.outcome import Outcome
from rewards.pool.pool import RewardPool
from rewards.pool.work import Pending
from rewards.registry import RewardFunction
from rewards.sample import Sample
from rewards.tags import Tags

_AT_ONCE, _AHEAD = 2000, 8


def grade_pair(response: str, gold: str | None, tags: Tags | None) -> Outcome:
    """`grade`, as a reward function."""
    return grade(response, gold, tags=tags)


def grade_many(
    pairs: Iterable[tuple[str, str]], *, tags: Tags | None = None, workers: int | None = None, timeout_s: float = 10.0
) -> list[Outcome]:
    """What `grade` says of each (response, gold), in order.

    Args:
        pairs: read as it is graded; may be long.
        tags: as in `grade`.
        workers: processes (see `RewardPool`); 0: this process grades, without deadlines.
        timeout_s: for each pair; one that takes longer is `timed_out`.

    >>> [outcome.status for outcome in grade_many([("\\\\boxed{4}", "4"), ("5", "4")], workers=0)]
    ['correct', 'wrong']
    """
    if workers is not None and workers < 0:
        raise UserError(f"grade_many: workers is {workers}; it must be from 0")
    rest = iter(pairs)
    first = list(islice(rest, 2))
    if workers == 0 or len(first) < 2:
        return [grade(response, gold, tags=tags) for response, gold in chain(first, rest)]
    samples = (Sample(response, gold, tags=tags) for response, gold in chain(first, rest))
    function = RewardFunction("grade", grade_pair, "rewards.pool.many:grade_pair")
    outcomes: list[Outcome] = []
    waiting: deque[Pending] = deque()
    with RewardPool([function], workers=workers, timeout_s=timeout_s, max_failed_share=1.0) as pool:
        while some := list(islice(samples, _AT_ONCE)):
            waiting.append(pool.submit(some))
            if len(waiting) > _AHEAD:
                outcomes += _outcomes(waiting.popleft())
        while waiting:
            outcomes += _outcomes(waiting.popleft())
    return outcomes


def _outcomes(pending: Pending) -> list[Outcome]:
    return [score.outcome for score in pending.result()[0] if score.outcome is not None]
