"""`math_competition_reward_fn`: for competition problems, whose answers may be any expression."""

from rewards.functions.answers import score_answer
from rewards.outcome import Score
from rewards.registry import reward_fn
from rewards.tags import Tags


@reward_fn("math_competition_reward_fn")
def math_competition_reward_fn(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    correct_score: float = 1.0,
    format_score: float = 0.1,
) -> Score:
    r"""1.0 for a right answer, 0.1 for a wrong one in the right format, else 0; answers may be LaTeX.

    >>> math_competition_reward_fn(r"<think>halves</think><answer>$\frac{1}{2}$</answer>", "0.5").value
    1.0
    """
    return score_answer(response, gold, tags, question, correct_score, format_score)
