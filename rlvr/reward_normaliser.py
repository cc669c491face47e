"""Reward normalisation: a neural model's scores brought to mean 0 and standard deviation 1.

A Bradley-Terry loss fixes only differences of scores, so their origin and scale are arbitrary (Ouyang et al. 2022,
section 3.5), while the divergence that is subtracted from them and the critic's learning rate are not.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rlvr.metrics import gather_json
from rlvr.models.reward_model import RewardStatistics


class Normaliser(Protocol):
    """Learns from scores, and normalises them."""

    def observe(self, scores: Sequence[float]) -> None:
        """Take these into account, with those of all other ranks. Collective."""
        ...

    def __call__(self, score: float) -> float: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class FixedNormaliser:
    """By statistics that were measured once, which `reward_statistics.json` beside the reward model holds."""

    def __init__(self, statistics: RewardStatistics) -> None:
        self.statistics = statistics

    def observe(self, scores: Sequence[float]) -> None:
        """Nothing is learned."""

    def __call__(self, score: float) -> float:
        return _standard(score, self.statistics.mean, self.statistics.std)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """There is no state."""


class RunningNormaliser:
    """By mean and standard deviation of all scores of the run so far, those that are normalised included.

    Moments are merged in rank order (Chan, Golub and LeVeque 1979), in double precision, so that every rank has the same
    numbers bit for bit.
    """

    def __init__(self) -> None:
        self.count, self.mean, self.sum_of_squares = 0, 0.0, 0.0

    def observe(self, scores: Sequence[float]) -> None:
        mean = math.fsum(scores) / len(scores) if scores else 0.0
        own = [len(scores), mean, math.fsum((score - mean) ** 2 for score in scores)]
        for count, mean, sum_of_squares in gather_json(own):
            if count:
                self._merge(count, mean, sum_of_squares)

    def _merge(self, count: int, mean: float, sum_of_squares: float) -> None:
        total, difference = self.count + count, mean - self.mean
        self.sum_of_squares += sum_of_squares + difference**2 * self.count * count / total
        self.mean += difference * count / total
        self.count = total

    @property
    def std(self) -> float:
        """Standard deviation of the sample; 0 before the second score."""
        return math.sqrt(self.sum_of_squares / (self.count - 1)) if self.count > 1 else 0.0

    def __call__(self, score: float) -> float:
        return _standard(score, self.mean, self.std)

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "mean": self.mean, "sum_of_squares": self.sum_of_squares}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count, self.mean, self.sum_of_squares = state["count"], state["mean"], state["sum_of_squares"]


def _standard(score: float, mean: float, std: float) -> float:
    """Scores that are all the same are all 0."""
    return (score - mean) / std if std > 0 else score - mean
