"""Rewards for the format alone: all of it, the share of its tags, and the share of them in order."""

from itertools import pairwise

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


@reward_fn("tag_count_fn")
def tag_count_fn(response: str, tags: Tags | None = None) -> float:
    """Share of the template's tags that the response holds as often as the template says.

    A tag that the template leaves out (`num_occur` 0) counts only where it stands all the same, as a wrong one: nothing
    is paid for what is not there.

    >>> tag_count_fn("<think>a</think><answer>b</answer>"), tag_count_fn("<think>a</think> b"), tag_count_fn("")
    (1.0, 0.5, 0.0)
    """
    tags = tags or Tags.default()
    judged = [
        tag
        for tag in (tags.think_start, tags.think_end, tags.answer_start, tags.answer_end)
        if tag.num_occur or tag.text in response
    ]
    right = sum(response.count(tag.text) == tag.num_occur for tag in judged)
    return right / len(judged) if judged else 1.0


@reward_fn("tag_order_fn")
def tag_order_fn(response: str, tags: Tags | None = None) -> float:
    """Share of the template's neighbouring tags that both stand, the first of them first.

    >>> tag_order_fn("<think>a</think><answer>b</answer>"), tag_order_fn("<answer>b</answer><think>a</think>")
    (1.0, 0.6666666666666666)
    >>> tag_order_fn("<think>"), tag_order_fn("")
    (0.0, 0.0)
    """
    tags = tags or Tags.default()
    wanted = [tag for tag in (tags.think_start, tags.think_end, tags.answer_start, tags.answer_end) if tag.num_occur]
    places = [response.find(tag.text) for tag in wanted]
    if len(places) < 2:
        return float(all(place >= 0 for place in places))
    return sum(0 <= first < second for first, second in pairwise(places)) / (len(places) - 1)
