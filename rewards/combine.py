"""Several reward functions, one number.

Three ways to add up, all with weights:

- `sum`: the scores as they are;
- `sum_then_normalise`: the sums, then normalised within each group (as GRPO does);
- `normalise_then_sum`: each function's scores normalised within each group first, so that a function of small or rare
  differences counts as much as its weight says (as GDPO does).

>>> normalise([1.0, 3.0, None, 7.0], ["a", "a", "a", "b"], eps=0.0)
[-0.7071067811865475, 0.7071067811865475, None, 0.0]
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, get_args

from rewards.call import score
from rewards.errors import UserError
from rewards.outcome import FAILED, Outcome, Score
from rewards.registry import RewardFunction
from rewards.sample import Sample

Aggregation = Literal["sum", "normalise_then_sum", "sum_then_normalise"]
AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)


@dataclass(frozen=True)
class Combined:
    """The scores of one response by all functions, and their total.

    Attributes:
        total: what the response is paid; None = neither rewarded nor punished: no function with a weight applies, or one
            of them failed.
        scores: each function's score, by its name.
        outcome: the first verdict that a function gave.
    """

    total: float | None
    scores: dict[str, Score]
    outcome: Outcome | None = None


class Combiner:
    """Adds up columns of scores, one column for each name, wherever they come from.

    Args:
        names: of the columns.
        weights: one for each, 1 by default; a column of weight 0 is logged, and pays nothing.
        aggregation: see the module's description.
        eps: added to the standard deviation that scores are divided by.

    Raises:
        UserError: two columns of one name, not one finite weight for each, an unknown aggregation, or an `eps` that is
            not positive.
    """

    def __init__(
        self,
        names: Sequence[str],
        weights: Sequence[float] | None = None,
        aggregation: Aggregation = "sum",
        eps: float = 1e-4,
    ) -> None:
        self.names = list(names)
        self.weights = list(weights) if weights is not None else [1.0] * len(self.names)
        self.aggregation, self.eps = aggregation, eps
        if len(self.weights) != len(self.names):
            raise UserError(
                f"{len(self.weights)} reward weights for {len(self.names)} reward functions; give one for each"
            )
        if not all(math.isfinite(weight) for weight in self.weights):
            raise UserError(f"reward weights must be finite numbers, not {self.weights}")
        if len(set(self.names)) != len(self.names):
            raise UserError(f"reward functions named twice: {', '.join(self.names)}")
        if aggregation not in AGGREGATIONS:
            raise UserError(f"unknown aggregation {aggregation!r} of rewards; there are: {', '.join(AGGREGATIONS)}")
        if not eps > 0:
            raise UserError(f"eps of the normalised rewards must be above 0, not {eps}")

    def combine(self, columns: Sequence[Sequence[Score]], groups: Sequence[Hashable] | None = None) -> list[Combined]:
        """Add up scores, wherever they come from.

        A sample on which a function with a weight failed is dropped: its total is None, and its other scores have no
        part in the group's mean. Breaking a checker thus never pays.

        Args:
            columns: for each name, its score of each sample.
            groups: for each sample, the group that it is normalised in (its prompt, say); by default all are one group.

        Raises:
            ValueError: not one column for each name, or columns or groups of different lengths.
        """
        if len(columns) != len(self.names):
            raise ValueError(f"{len(columns)} columns of scores for {len(self.names)} reward functions")
        count = len(columns[0]) if columns else 0
        groups = [None] * count if groups is None else groups
        if any(len(column) != count for column in columns) or len(groups) != count:
            raise ValueError(f"columns of {[len(c) for c in columns]} scores with {len(groups)} groups")
        totals = self._totals(columns, groups)
        return [self._combined(totals[i], [column[i] for column in columns]) for i in range(count)]

    def _totals(self, columns: Sequence[Sequence[Score]], groups: Sequence[Hashable]) -> list[float | None]:
        paid = [(weight, column) for weight, column in zip(self.weights, columns, strict=True) if weight]
        failed = [any(_failed(column[i]) for _, column in paid) for i in range(len(groups))]
        values = [[None if out else s.value for out, s in zip(failed, column, strict=True)] for _, column in paid]
        if self.aggregation == "normalise_then_sum":
            values = [normalise(column, groups, self.eps) for column in values]
        totals = [
            _weighted_sum([weight for weight, _ in paid], [column[i] for column in values]) for i in range(len(groups))
        ]
        return normalise(totals, groups, self.eps) if self.aggregation == "sum_then_normalise" else totals

    def _combined(self, total: float | None, scores: Sequence[Score]) -> Combined:
        outcome = next((s.outcome for s in scores if s.outcome is not None), None)
        return Combined(total, dict(zip(self.names, scores, strict=True)), outcome)


class RewardSet(Combiner):
    """Functions with weights. A function of weight 0 is called and logged, and pays nothing.

    Args:
        functions: resolved reward functions.
        weights, aggregation, eps: see `Combiner`, which also says what is refused.
    """

    def __init__(
        self,
        functions: Sequence[RewardFunction],
        weights: Sequence[float] | None = None,
        aggregation: Aggregation = "sum",
        eps: float = 1e-4,
    ) -> None:
        self.functions = list(functions)
        super().__init__([function.name for function in self.functions], weights, aggregation, eps)

    def __call__(self, samples: Sequence[Sample], groups: Sequence[Hashable] | None = None) -> list[Combined]:
        """Call every function and add up, sample by sample; `groups` as for `combine`."""
        return self.combine([score(function, samples) for function in self.functions], groups)


def normalise(values: Sequence[float | None], groups: Sequence[Hashable], eps: float) -> list[float | None]:
    """(x - mean) / (std + eps) within each group, over the values that are not None; std is that of a sample.

    A group whose values are all the same, or that has one, gets 0.
    """
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        if value is not None:
            members.setdefault(group, []).append(value)
    # Equal values are told by comparing them: rounding could leave them a tiny deviation.
    shapes = {g: (fmean(xs), stdev(xs) + eps) if min(xs) < max(xs) else None for g, xs in members.items()}
    return [None if v is None else _standard(v, shapes[g]) for v, g in zip(values, groups, strict=True)]


def _standard(value: float, shape: tuple[float, float] | None) -> float:
    return 0.0 if shape is None else (value - shape[0]) / shape[1]


def _weighted_sum(weights: Sequence[float], values: Sequence[float | None]) -> float | None:
    applies = [weight * value for weight, value in zip(weights, values, strict=True) if value is not None]
    return sum(applies) if applies else None


def _failed(score: Score) -> bool:
    return score.value is None and score.outcome is not None and score.outcome.status in FAILED
