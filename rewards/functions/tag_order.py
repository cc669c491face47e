"""`tag_order_fn`: a step on the way to the format."""

from itertools import pairwise

from rewards.registry import reward_fn
from rewards.tags import Tags


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
