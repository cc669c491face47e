"""`tag_count_fn`: a step on the way to the format."""

from rewards.registry import reward_fn
from rewards.tags import Tags


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
