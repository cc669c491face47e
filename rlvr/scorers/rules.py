"""`RewardScorer`, which the trainer asks for one score per response, and `RLVRRewardModel`, which asks reward functions.

The trainer does not know where a score comes from: everything that scores is a `RewardScorer`, here for rules, in
`rlvr/scorers/neural.py` for neural reward models and both together, in `rlvr/scorers/environments.py` for pay made of scores.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rewards import STATUSES, RewardFunction, RewardSet, Sample, Tags, call, resolve
from rewards.combine import Aggregation, Combined, Combiner
from rewards.outcome import FAILED, Score
from rewards.pool import Pending, RewardPool
from rlvr.data.problems import Problem
from rlvr.rollout.engine import Rollout


class RewardScorer(ABC):
    """Gives each response what it is paid.

    Attributes:
        tokenizer: the policy's; decodes responses when the scorer is called on token ids.
        tags: the conversation template's response tags.
    """

    tokenizer: PreTrainedTokenizerBase | None = None
    tags: Tags | None = None

    @property
    @abstractmethod
    def names(self) -> list[str]:
        """The scores' names, in order."""

    @abstractmethod
    def begin(self) -> "Scoring":
        """Start to score samples that come one after the other, while others are still being generated."""

    def score(self, samples: Sequence[Sample]) -> list[Combined]:
        """Every verdict on each sample and the weighted total (None: nothing applied, or a function failed).

        Raises:
            UserError: a function returned something that is no score, or failed too often; the message names it.
        """
        scoring = self.begin()
        scoring.add(samples)
        return scoring.result()

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        response_start: Sequence[int] | Tensor,
        response_end: Sequence[int] | Tensor,
        gt_answer: Sequence[str | None],
    ) -> Tensor:
        """Score padded token ids, as the reference's reward models do.

        Args:
            input_ids: [B, T] prompts and responses, padded on either side.
            attention_mask: [B, T] 1 on tokens.
            response_start: [B] column of each response's first token.
            response_end: [B] column of each response's last token, inclusive.
            gt_answer: [B] right answers.

        Returns:
            [B] float32 scores; NaN where nothing applied.
        """
        if self.tokenizer is None:
            raise ValueError(f"{type(self).__name__} needs a tokenizer to be called on token ids")
        samples = []
        for ids, mask, start, end, gold in zip(
            input_ids.tolist(), attention_mask.tolist(), response_start, response_end, gt_answer, strict=True
        ):
            prompt = [token for token, real in zip(ids[: int(start)], mask[: int(start)], strict=True) if real]
            response = ids[int(start) : int(end) + 1]
            samples.append(make_sample(self.tokenizer, prompt, response, gold=gold, tags=self.tags))
        totals = [result.total for result in self.score(samples)]
        return torch.tensor([float("nan") if t is None else t for t in totals], device=input_ids.device)

    def to(self, device: torch.device | str) -> "RewardScorer":
        """Move what is on a device; rules live on the CPU."""
        return self

    def eval(self) -> "RewardScorer":
        """Nothing that scores has a training mode; here so that it can be handled like a module."""
        return self

    def close(self) -> None:  # noqa: B027  most have nothing to do
        """End worker processes, if there are any."""

    def state_dict(self) -> dict[str, Any]:
        """State beside weights and settings, as plain JSON, such as a running normaliser's; a checkpoint keeps it."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: B027  most have nothing to do
        """Put back what `state_dict` returned."""


class Scoring(ABC):
    """Scores on their way: samples are added as they are generated, and combined when all are there.

    Args:
        combiner: adds the columns up. Groups are the samples of one prompt.
    """

    def __init__(self, combiner: Combiner) -> None:
        self.combiner = combiner
        self.samples: list[Sample] = []

    def add(self, samples: Sequence[Sample]) -> None:
        """Score these too; returns at once where that is done elsewhere."""
        self.samples.extend(samples)

    def complete(self) -> None:  # noqa: B027  most have nothing to do
        """No more samples will come: begin to score what was added."""

    @abstractmethod
    def columns(self) -> list[list[Score]]:
        """For each name, its score of each sample, in the order in which they were added; waits for them."""

    def result(self) -> list[Combined]:
        """The verdicts, in the order in which samples were added; waits for them.

        Raises:
            UserError: see `RewardScorer.score`.
        """
        groups = [sample.prompt for sample in self.samples]
        return self.combiner.combine(self.columns(), groups)


class RLVRRewardModel(RewardScorer):
    """Scores responses with registered functions, each called once for each sample.

    Args:
        reward_fn_list: names (see `rewards.resolve`), plain functions, or resolved `RewardFunction`s.
        tokenizer: decodes responses when the model is called on token ids.
        tags: the conversation template's response tags.
        weights: one for each function, 1 by default; 0 makes a function a mere metric.
        options: keyword arguments by function name.
        aggregation: how the functions' scores are added up; see `rewards.combine`. Groups are the samples of one prompt.
        make_pool: makes the worker processes that run the functions; without it they run in this process.
    """

    def __init__(
        self,
        reward_fn_list: Sequence[str | Callable[..., Any] | RewardFunction],
        tokenizer: PreTrainedTokenizerBase | None = None,
        tags: Tags | None = None,
        weights: Sequence[float] | None = None,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        aggregation: Aggregation = "sum",
        make_pool: Callable[[Sequence[RewardFunction]], RewardPool | None] | None = None,
    ) -> None:
        functions = [_with_tokenizer(resolve(f, options=options), tokenizer) for f in reward_fn_list]
        self.rewards = RewardSet(functions, weights, aggregation)
        self.pool = make_pool(functions) if make_pool else None
        self.tokenizer = tokenizer
        self.tags = tags

    @property
    def names(self) -> list[str]:
        """The functions' names, in order."""
        return self.rewards.names

    def begin(self) -> "RuleScoring":
        return RuleScoring(self)

    def close(self) -> None:
        if self.pool is not None:
            self.pool.close()


class RuleScoring(Scoring):
    """Scores by functions, which start as samples come in. With one that takes the whole batch, all start at `complete`."""

    def __init__(self, model: RLVRRewardModel) -> None:
        super().__init__(model.rewards)
        self.functions, self.pool = model.rewards.functions, model.pool
        self.begun = 0
        self.waiting: list[Pending | list[list[Score]]] = []

    def add(self, samples: Sequence[Sample]) -> None:
        super().add(samples)
        if not any(function.batched for function in self.functions):
            self.complete()

    def complete(self) -> None:
        batch, self.begun = self.samples[self.begun :], len(self.samples)
        if batch and self.pool is not None:
            self.waiting.append(self.pool.submit(batch))
        elif batch:
            self.waiting.append([call.score(function, batch) for function in self.functions])

    def columns(self) -> list[list[Score]]:
        self.complete()
        parts = [part if isinstance(part, list) else part.result() for part in self.waiting]
        return [[one for part in parts for one in part[i]] for i in range(len(self.functions))]


def _with_tokenizer(function: RewardFunction, tokenizer: PreTrainedTokenizerBase | None) -> RewardFunction:
    """A function that asks for `tokenizer` (ColossalAI's do) gets this one, once for each worker rather than each sample."""
    if tokenizer is None or "tokenizer" not in function.parameters or "tokenizer" in function.options:
        return function
    return replace(function, options={**function.options, "tokenizer": tokenizer})


def metrics_of(result: Combined) -> dict[str, float]:
    """One response's share in the metrics: each function's value and components, and the verdict."""
    metrics: dict[str, float] = {}
    for name, score in result.scores.items():
        if score.value is not None:
            metrics[f"reward/{name}"] = score.value
        metrics[f"reward/{name}/failed"] = float(score.outcome is not None and score.outcome.status in FAILED)
        metrics |= {f"reward/{name}/{component}": value for component, value in score.components.items()}
    if result.outcome is not None:
        metrics |= {f"outcome/{status}": float(result.outcome.status == status) for status in STATUSES}
    return metrics


def sample_of(
    tokenizer: PreTrainedTokenizerBase, problem: Problem, rollout: Rollout, tags: Tags | None = None
) -> Sample:
    """A rollout as reward functions see it.

    Of several turns, the text is that of the policy's last, and the tokens are those of all. Where an environment has played, there are
    columns more: `environment_scores`, its scores by name (None if it failed), `environment_failure`, what went wrong ("" if nothing),
    and `environment_turns`, the texts of the turns, the policy's and its in alternation.
    """
    sample = make_sample(
        tokenizer,
        rollout.prompt_ids.tolist(),
        rollout.response_ids.tolist(),
        gold=problem.answer,
        tags=tags,
        question=problem.question,
        finished=rollout.finished,
        columns=problem.columns,
    )
    if rollout.action_mask is None:
        return sample
    last = tokenizer.decode(rollout.last_turn_ids.tolist(), skip_special_tokens=True)
    of_episode: dict[str, Any] = {}
    if rollout.end is not None:
        of_episode = {
            "environment_scores": None if rollout.end.failure else dict(rollout.end.scores),
            "environment_failure": rollout.end.failure,
            "environment_turns": [tokenizer.decode(ids.tolist(), skip_special_tokens=True) for ids in rollout.turns],
        }
    return replace(sample, response=last, columns={**problem.columns, **of_episode})


def make_sample(
    tokenizer: PreTrainedTokenizerBase,
    prompt_ids: Sequence[int],
    response_ids: Sequence[int],
    *,
    gold: str | None,
    tags: Tags | None = None,
    question: str | None = None,
    finished: bool = True,
    columns: Mapping[str, Any] | None = None,
) -> Sample:
    """One response as reward functions see it: its text without special tokens, its tokens, and the problem's columns."""
    return Sample(
        response=tokenizer.decode(list(response_ids), skip_special_tokens=True),
        gold=gold,
        prompt=tokenizer.decode(list(prompt_ids), skip_special_tokens=False),
        question=question,
        tags=tags,
        response_ids=tuple(response_ids),
        finished=finished,
        columns=columns or {},
        prompt_ids=tuple(prompt_ids),
    )
