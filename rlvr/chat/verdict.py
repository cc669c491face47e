"""What an answer is worth: the grader's verdict, and the scores of named reward functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rewards import Outcome, Sample, grade
from rewards.audit import score_each
from rlvr.policy import Policy
from rlvr.rewarding import RLVRRewardModel


@dataclass(frozen=True)
class Verdict:
    """What one judge says.

    Attributes:
        judge: `grader`, or a function's name.
        status: the verdict's, or `scored`, or `does not apply`.
        text: the reason.
    """

    judge: str
    status: str
    text: str


class Judge:
    """Compares answers with the right one by rule, and scores them with functions, if some are named.

    Args:
        policy: whose tokenizer functions may ask for.
        functions: names, as `--reward_functions` takes them.
        options: keyword arguments by function name.

    Raises:
        UserError: there is no such function.
    """

    def __init__(
        self, policy: Policy, functions: Sequence[str] = (), options: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        rewards = RLVRRewardModel(functions, policy.tokenizer, policy.conversation.tags, options=options)
        self._functions = rewards.rewards.functions

    def verdicts(self, sample: Sample) -> list[Verdict]:
        """The grader's, where the right answer is known, and each function's; one that raises says `error` and what."""
        found = []
        if sample.gold is not None:
            outcome = grade(sample.response, sample.gold, tags=sample.tags, question=sample.question)
            found.append(Verdict("grader", outcome.status, _reason(outcome, sample.gold)))
        for function in self._functions:
            (score,) = score_each(function, [sample])
            parts = [f"{part} {value:.4g}" for part, value in score.components.items()]
            if score.outcome is not None and score.outcome.message:
                parts.append(score.outcome.message)
            status = f"{score.value:.4g}" if score.value is not None else "does not apply"
            if score.value is None and score.outcome is not None:
                status = score.outcome.status
            found.append(Verdict(function.name, status, ", ".join(parts)))
        return found


def _reason(outcome: Outcome, gold: str) -> str:
    said = f"answer {outcome.answer}" if outcome.answer is not None else "no answer"
    how = f" ({outcome.stage})" if outcome.stage else ""
    return f"{said}, gold {gold}{how}" + (f": {outcome.message}" if outcome.message else "")
