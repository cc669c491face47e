"""`Score` and `Outcome`: the value of a response, and the verdict behind it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

Status = Literal["correct", "wrong", "no_answer", "bad_gold", "timed_out", "error"]
STATUSES: tuple[Status, ...] = get_args(Status)
FAILED: tuple[Status, ...] = ("timed_out", "error")
"""Verdicts of a function that could not do its work."""
UNDECIDED: tuple[Status, ...] = ("bad_gold", *FAILED)
"""Verdicts that say nothing of the response: the sample is neither rewarded nor punished."""


@dataclass(frozen=True)
class Outcome:
    """A verdict.

    Attributes:
        status: correct, wrong, no_answer (nothing to compare), bad_gold (the right answer can't be parsed: the sample is
            neither right nor wrong), timed_out, or error.
        answer: what was taken for the answer.
        stage: the comparison that decided.
        elapsed_s: time that it took.
        message: what went wrong, if something did.
    """

    status: Status
    answer: str | None = None
    stage: str = ""
    elapsed_s: float = 0.0
    message: str = ""

    @property
    def correct(self) -> bool:
        return self.status == "correct"


@dataclass(frozen=True)
class Score:
    """The score of one response by one function; `value` None = it does not apply, and the sample is skipped.

    `text` is what a function hands back besides, such as an environment's turn; whoever adds up scores doesn't read it.
    """

    value: float | None
    outcome: Outcome | None = None
    components: Mapping[str, float] = field(default_factory=dict)
    text: str = ""
