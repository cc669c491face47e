"""Environments (`--rl_env_type`): they turn the scores of reward functions and models into what a response is paid.

- `text_generation`: the weighted total as it is; nothing stands between scorer and trainer.
- `multi_objective`: objectives by name with weights, `{"correctness": 1.0, "formatting": 0.1}`. An objective is a reward
  function, the neural `reward_model`, or a component of either (`function/component`, or its bare name).
- `preference_comparison`: the responses to one prompt are compared pairwise by their scores; a response is paid its win
  rate, a tie counting half.

The last two wrap any `RewardScorer` and are scorers themselves, so the trainer does not know the difference;
`preference_comparison` may wrap `multi_objective`. All scores beneath stay in the metrics, a curve for each component.

Environments that answer back over several turns are elsewhere (`rewards/environment.py`, `rlvr/rollout/episodes.py`); what they pay
comes here as the score of a reward function.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from rewards import Sample
from rewards.combine import Aggregation, Combined, Combiner
from rewards.outcome import FAILED, Score
from rlvr.errors import UserError, did_you_mean, listed
from rlvr.scorers.rules import RewardScorer, Scoring

WIN_RATE = "win_rate"


class Environment(RewardScorer):
    """Wraps a scorer and changes what is paid, sample by sample.

    Args:
        scorer: what is wrapped.
    """

    def __init__(self, scorer: RewardScorer) -> None:
        self.scorer = scorer
        self.tokenizer, self.tags = scorer.tokenizer, scorer.tags

    def pay(self, samples: Sequence[Sample], results: Sequence[Combined]) -> list[Combined]:
        """The results of the wrapped scorer with other totals."""
        raise NotImplementedError

    @property
    def names(self) -> list[str]:
        return self.scorer.names

    def begin(self) -> Scoring:
        return _EnvironmentScoring(self)

    def to(self, device: torch.device | str) -> "Environment":
        self.scorer.to(device)
        return self

    def close(self) -> None:
        self.scorer.close()

    def state_dict(self) -> dict[str, Any]:
        return self.scorer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.scorer.load_state_dict(state)


class _EnvironmentScoring(Scoring):
    def __init__(self, environment: Environment) -> None:
        self.inner = environment.scorer.begin()
        super().__init__(self.inner.combiner)
        self.environment = environment

    def add(self, samples: Sequence[Sample]) -> None:
        super().add(samples)
        self.inner.add(samples)

    def complete(self) -> None:
        self.inner.complete()

    def columns(self) -> list[list[Score]]:
        return self.inner.columns()

    def result(self) -> list[Combined]:
        return self.environment.pay(self.samples, self.inner.result())


class MultiObjective(Environment):
    """Pays the weighted sum of named objectives.

    Args:
        scorer: gives the scores.
        weights: by the name of a function, of `reward_model`, or of a component.
        aggregation: how objectives are added up; see `rewards.combine`.
    """

    def __init__(self, scorer: RewardScorer, weights: Mapping[str, float], aggregation: Aggregation = "sum") -> None:
        super().__init__(scorer)
        self.combiner = Combiner(list(weights), list(weights.values()), aggregation)
        self.finder = ScoreFinder("--rl_reward_weights")

    def pay(self, samples: Sequence[Sample], results: Sequence[Combined]) -> list[Combined]:
        columns = [self.finder.column(name, results) for name in self.combiner.names]
        paid = self.combiner.combine(columns, [sample.prompt for sample in samples])
        return [replace(result, total=new.total) for result, new in zip(results, paid, strict=True)]


class PreferenceComparison(Environment):
    """Pays each response the share of the other responses to its prompt that it beats, a tie counting half.

    A response without a score (its function failed, say) is compared with none and is not trained on; so is one that has
    nothing to be compared with.

    Args:
        scorer: gives the scores that are compared.
        judge: name of the score; by default the weighted total.
        tie_margin: scores that differ by no more tie.
    """

    def __init__(self, scorer: RewardScorer, judge: str | None = None, tie_margin: float = 0.0) -> None:
        super().__init__(scorer)
        self.judge, self.tie_margin = judge, tie_margin
        self.finder = ScoreFinder("--rl_env_config: judge")

    def pay(self, samples: Sequence[Sample], results: Sequence[Combined]) -> list[Combined]:
        values = [result.total for result in results]
        if self.judge is not None:
            values = [score.value for score in self.finder.column(self.judge, results)]
        rates = win_rates(values, [sample.prompt for sample in samples], self.tie_margin)
        return [_with_rate(result, rate) for result, rate in zip(results, rates, strict=True)]


def _with_rate(result: Combined, rate: tuple[float, float] | None) -> Combined:
    score = Score(None) if rate is None else Score(rate[0], components={"ties": rate[1]})
    return replace(result, total=score.value, scores={**result.scores, WIN_RATE: score})


def win_rates(
    values: Sequence[float | None], groups: Sequence[Hashable], tie_margin: float = 0.0
) -> list[tuple[float, float] | None]:
    """For each value, the share of the others in its group that it beats (ties half) and the share that it ties with.

    None for a value that is None, and for one that is alone.

    >>> win_rates([3.0, 1.0, 1.0, None, 5.0], ["a", "a", "a", "a", "b"])
    [(1.0, 0.0), (0.25, 0.5), (0.25, 0.5), None, None]
    """
    members: dict[Hashable, list[float]] = {}
    for value, group in zip(values, groups, strict=True):
        if value is not None:
            members.setdefault(group, []).append(value)
    return [
        None if value is None else _rates(value, members[group], tie_margin)
        for value, group in zip(values, groups, strict=True)
    ]


def _rates(value: float, group: Sequence[float], tie_margin: float) -> tuple[float, float] | None:
    others = len(group) - 1
    if not others:
        return None
    ties = sum(abs(value - other) <= tie_margin for other in group) - 1  # itself
    wins = sum(value - other > tie_margin for other in group)
    return (wins + ties / 2) / others, ties / others


class ScoreFinder:
    """Finds scores by name: a function's or model's, or a component of one.

    Args:
        where: the setting that names are from, for messages.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self._places: dict[str, tuple[str, str]] = {}

    def column(self, name: str, results: Sequence[Combined]) -> list[Score]:
        """The score called `name` of each response.

        A component that a response lacks does not apply to it; one of a function that failed has failed too.

        Raises:
            UserError: nothing is called so, though every function applied to some response; or several components are.
        """
        if not results or name in results[0].scores:
            return [result.scores[name] for result in results]
        if name not in self._places:
            place = self._look_for(name, results)
            if place is None:  # no function has given components yet, so the name may still turn up
                return [next((s for s in r.scores.values() if _failed(s)), Score(None)) for r in results]
            self._places[name] = place
        function, component = self._places[name]
        return [_component(result.scores[function], component) for result in results]

    def _look_for(self, name: str, results: Sequence[Combined]) -> tuple[str, str] | None:
        places = {(key, part) for r in results for key, score in r.scores.items() for part in score.components}
        found = sorted(place for place in places if name in ("/".join(place), place[1]))
        if len(found) == 1:
            return found[0]
        if not found and not any(all(s.value is not None for s in r.scores.values()) for r in results):
            return None
        there = [*results[0].scores, *sorted("/".join(place) for place in places)]
        problem = f"several scores are called {name!r}" if found else f"no score is called {name!r}"
        raise UserError(f"{self.where}: {problem}; there are {listed(there)}.{did_you_mean(name, there)}")


def _component(score: Score, name: str) -> Score:
    return score if _failed(score) else Score(score.components.get(name), score.outcome)


def _failed(score: Score) -> bool:
    return score.value is None and score.outcome is not None and score.outcome.status in FAILED
