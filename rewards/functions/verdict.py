"""The verdict that `correctness`, `math_reward_fn` and `cosine_length_fn` share: right or not, whatever the format."""

from rewards.grade import gold_from_gsm8k, grade
from rewards.outcome import Outcome
from rewards.tags import Tags


def verdict(response: str, gold: str | None, tags: Tags | None, question: str | None = None) -> Outcome:
    """Compare the answer with the right one.

    The answer stands between the template's answer tags if the response has them after its thinking; otherwise it is
    looked for in what follows the thinking. Nothing inside of the thinking is an answer.

    >>> verdict("so 42", "42", None).status, verdict("<think>42</think> it is 41", "42", None).status
    ('correct', 'wrong')
    >>> verdict("<think>42", "42", None).status, verdict("<answer>41</answer> or 42", "42", None).status
    ('no_answer', 'wrong')
    """
    tags = tags or Tags.default()
    gold = None if gold is None else gold_from_gsm8k(gold)
    rest = after_thinking(response, tags)
    if tags.answer_start.text in rest or tags.answer_end.text in rest:
        return grade(response, gold, tags=tags, question=question)
    return grade(rest, gold, question=question)


def after_thinking(response: str, tags: Tags) -> str:
    """What follows the thinking; "" where the thinking never ends."""
    if tags.think_end.text in response:
        return response.rsplit(tags.think_end.text, 1)[1]
    # A prompt that ends in the start tag leaves only the end tag to the response.
    begun_by_prompt = tags.think_end.num_occur > tags.think_start.num_occur
    return "" if tags.think_start.text in response or begun_by_prompt else response
