"""`format_reward_fn`, also called `formatting`: for the format alone."""

from rewards.registry import reward_fn
from rewards.tags import Tags


@reward_fn("formatting")
@reward_fn("format_reward_fn")
def format_reward_fn(response: str, tags: Tags | None = None, score: float = 1.0) -> float:
    """`score` for a response whose tags stand as the template says, else 0.

    >>> format_reward_fn("<think>a</think> <answer>b</answer>"), format_reward_fn("<answer>b</answer>")
    (1.0, 0.0)
    """
    return score if (tags or Tags.default()).is_well_formed(response) else 0.0
