"""Several reward functions, one number."""

from collections.abc import Sequence
from dataclasses import dataclass

from rewards.call import score
from rewards.errors import UserError
from rewards.outcome import Outcome, Score
from rewards.registry import RewardFunction
from rewards.sample import Sample


@dataclass(frozen=True)
class Combined:
    """What all functions say of one response.

    Attributes:
        total: the weighted sum of what applies; None when no function with a weight applies.
        scores: each function's score, by its name.
        outcome: the first verdict that a function gave.
    """

    total: float | None
    scores: dict[str, Score]
    outcome: Outcome | None = None


class RewardSet:
    """Functions with weights. A function of weight 0 is called and logged, and pays nothing.

    Raises:
        UserError: two functions of one name, or not one weight for each.
    """

    def __init__(self, functions: Sequence[RewardFunction], weights: Sequence[float] | None = None) -> None:
        self.functions = list(functions)
        self.weights = list(weights) if weights is not None else [1.0] * len(self.functions)
        if len(self.weights) != len(self.functions):
            raise UserError(
                f"{len(self.weights)} reward weights for {len(self.functions)} reward functions; give one for each"
            )
        names = [function.name for function in self.functions]
        if len(set(names)) != len(names):
            raise UserError(f"reward functions named twice: {', '.join(names)}")

    def __call__(self, samples: Sequence[Sample]) -> list[Combined]:
        """Call every function and add up, sample by sample."""
        columns = [score(function, samples) for function in self.functions]
        return [self._combine([column[i] for column in columns]) for i in range(len(samples))]

    def _combine(self, scores: Sequence[Score]) -> Combined:
        paid = [(w, s.value) for w, s in zip(self.weights, scores, strict=True) if w and s.value is not None]
        total = sum(weight * value for weight, value in paid) if paid else None
        outcome = next((s.outcome for s in scores if s.outcome is not None), None)
        return Combined(total, {f.name: s for f, s in zip(self.functions, scores, strict=True)}, outcome)
