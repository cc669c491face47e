"""`correctness`: the verdict as a number, to be weighed against other functions."""

from rewards.functions.verdict import verdict
from rewards.outcome import UNDECIDED, Score
from rewards.registry import reward_fn
from rewards.tags import Tags


@reward_fn("correctness")
def correctness(response: str, gold: str | None, tags: Tags | None = None, question: str | None = None) -> Score:
    """1 for a right answer, 0 for a wrong one or none; the format is not looked at.

    >>> correctness("<think>6 * 7</think><answer>42</answer>", "42").value, correctness("it is 41", "42").value
    (1.0, 0.0)
    """
    outcome = verdict(response, gold, tags, question)
    return Score(None if outcome.status in UNDECIDED else float(outcome.correct), outcome)
