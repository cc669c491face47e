"""`Sample`: everything that a reward function can ask for about one response."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.tags import Tags


@dataclass(frozen=True)
class Sample:
    """One response with its problem.

    Attributes:
        response: the text that the model wrote, without special tokens; of several turns, the last.
        gold: the right answer, if the data has one.
        prompt: the text that the model saw.
        question: the problem.
        tags: the template's tags.
        response_ids: the tokens of the response; of several turns, all of them, with an environment's between.
        finished: whether the response ended by itself rather than at the length limit.
        columns: further columns of the data.
        prompt_ids: the tokens of the prompt, for reward models that read tokens.
    """

    response: str
    gold: str | None
    prompt: str = ""
    question: str | None = None
    tags: Tags | None = None
    response_ids: Sequence[int] = ()
    finished: bool = True
    columns: Mapping[str, Any] = field(default_factory=dict)
    prompt_ids: Sequence[int] = ()

    @property
    def answer(self) -> str | None:
        """The text of the answer tag; None without tags, or where the response has none."""
        return self.tags.answer_of(self.response) if self.tags else None

    def known(self) -> dict[str, Any]:
        """Everything by the name that a reward function asks for it; the data's columns give way to ours."""
        own = {name: getattr(self, name) for name in FIELDS}
        return {**self.columns, **own}


FIELDS = ("response", "gold", "prompt", "question", "answer", "tags", "response_ids", "finished")

"""Argument names of a reward function that is called once for each sample."""

PLURAL_OF = {
    "response": "responses",
    "gold": "golds",
    "prompt": "prompts",
    "question": "questions",
    "answer": "answers",
    "response_ids": "responses_ids",
    "finished": "finished_flags",
}
"""Argument names that ask for the whole batch at once. A data column `x` keeps its name `x` in a batch function."""
