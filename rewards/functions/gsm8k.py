"""`gsm8k_reward_fn`: for grade-school problems, whose answers are numbers."""

from rewards.functions.answers import score_answer
from rewards.outcome import Score
from rewards.registry import reward_fn
from rewards.tags import Tags


@reward_fn("gsm8k_reward_fn")
def gsm8k_reward_fn(
    response: str,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    correct_score: float = 1.0,
    format_score: float = 0.1,
) -> Score:
    """1.0 for a right answer, 0.1 for a wrong one in the right format, else 0.

    The answer counts only between the answer tags. A right answer whose response breaks the format is paid
    `correct_score - format_score`.

    >>> text = "<think>3 boxes of 14</think><answer>42</answer>"
    >>> gsm8k_reward_fn(text, "42").value, gsm8k_reward_fn(text, "41").value
    (1.0, 0.1)
    >>> gsm8k_reward_fn("42", "#### 42").value
    0.0
    """
    return score_answer(response, gold, tags, question, correct_score, format_score)
