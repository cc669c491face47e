"""`math_reward_fn`: for a right answer, with tags or without."""

from rewards.functions.verdict import verdict
from rewards.outcome import UNDECIDED, Score
from rewards.registry import reward_fn
from rewards.tags import Tags


@reward_fn("math_reward_fn")
def math_reward_fn(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    correct_score: float = 1.0,
    wrong_score: float = 0.0,
) -> Score:
    r"""1.0 for a right answer, else 0; tags count where the response has them and are not asked for.

    Without answer tags the answer is the last box, what follows `####` or "the answer is", or the last number. A gold
    that can't be parsed makes the sample not apply.

    >>> math_reward_fn(r"halves, so \boxed{\frac{1}{2}}", "0.5").value
    1.0
    >>> math_reward_fn("<think>6 * 7</think><answer>42</answer>", "#### 42").value
    1.0
    >>> math_reward_fn(r"<think>\boxed{42}</think><answer>41</answer>", "42").value
    0.0
    """
    outcome = verdict(response, gold, tags, question)
    if outcome.status in UNDECIDED:
        return Score(None, outcome)
    return Score(correct_score if outcome.correct else wrong_score, outcome)
