"""`reasoning_gym_reward_fn`: what the task's own verifier pays."""

from collections.abc import Mapping
from typing import Any

from rewards.extract import unbox
from rewards.functions.correctness import after_thinking
from rewards.outcome import Outcome, Score
from rewards.procedural import all_tasks, task
from rewards.registry import reward_fn
from rewards.tags import Tags

STAGE = "verifier"


@reward_fn("reasoning_gym_reward_fn")
def reasoning_gym_reward_fn(
    response: str,
    tags: Tags | None = None,
    procedural: Mapping[str, Any] | None = None,
    partial: bool = True,
) -> Score:
    """What the verifier of a reasoning-gym task pays for the answer, 0 to 1; does not apply to problems of other sources.

    The answer is what stands between the answer tags after the thinking, or all that follows the thinking where there are none. Some
    verifiers pay a part for an answer that is nearly right; with `partial` false only a whole 1 counts.

    >>> reasoning_gym_reward_fn("<answer>42</answer>").value is None
    True
    """
    if procedural is None:
        return Score(None)
    made = task(procedural["task"], tuple(map(tuple, procedural["settings"])), procedural["seed"], procedural["size"])
    answer = _answer(response, tags or Tags.default())
    if not answer:
        return Score(0.0, Outcome("no_answer", None, STAGE))
    try:
        value = made.pays(answer, made.entry(procedural["index"]))
    except ValueError as error:
        return Score(0.0, Outcome("wrong", answer, STAGE, message=f"the verifier can't read it: {error}"[:500]))
    return Score(value if partial else float(value == 1), Outcome("correct" if value == 1 else "wrong", answer, STAGE))


# Importing the tasks takes seconds, more than a response may on a busy machine.
reasoning_gym_reward_fn.prepare = lambda **_: all_tasks()  # type: ignore[attr-defined]


def _answer(response: str, tags: Tags) -> str | None:
    rest = after_thinking(response, tags)
    if tags.answer_start.text in rest or tags.answer_end.text in rest:
        return tags.answer_of(response)
    return unbox(rest).strip()
