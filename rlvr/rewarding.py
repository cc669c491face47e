"""`RLVRRewardModel`: rule-based reward functions behind the call of a reward model.

The trainer asks a reward model for one score per response and does not know where it comes from.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rewards import STATUSES, RewardFunction, RewardSet, Sample, Tags, call, resolve
from rewards.combine import Aggregation, Combined
from rewards.outcome import FAILED, Score
from rewards.pool import Pending, RewardPool


class RLVRRewardModel:
    """Scores responses with registered functions, each called once for each sample.

    Args:
        reward_fn_list: names (see `rewards.resolve`), plain functions, or resolved `RewardFunction`s.
        tokenizer: decodes responses when the model is called on token ids.
        tags: the conversation template's response tags.
        weights: one for each function, 1 by default; 0 makes a function a mere metric.
        options: keyword arguments by function name.
        aggregation: how the functions' scores are added up; see `rewards.combine`. Groups are the samples of one prompt.
        make_pool: makes the worker processes that run the functions; without it they run in this process.

    Attributes:
        last_results: what the functions said at the last call, sample by sample.
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
        self.last_results: list[Combined] = []

    @property
    def names(self) -> list[str]:
        """The functions' names, in order."""
        return [function.name for function in self.rewards.functions]

    def begin(self) -> "Scoring":
        """Start to score samples that come one after the other, while others are still being generated."""
        return Scoring(self)

    def score(self, samples: Sequence[Sample]) -> list[Combined]:
        """Every function's verdict on each sample and the weighted total (None: no function applied, or one failed).

        Raises:
            UserError: a function returned something that is no score, or failed too often; the message names it.
        """
        scoring = self.begin()
        scoring.add(samples)
        return scoring.result()

    def close(self) -> None:
        """End the worker processes, if there are any."""
        if self.pool is not None:
            self.pool.close()

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
            [B] float32 scores; NaN where no function applied.
        """
        if self.tokenizer is None:
            raise ValueError("RLVRRewardModel needs a tokenizer to be called on token ids")
        samples = []
        for ids, mask, start, end, gold in zip(
            input_ids.tolist(), attention_mask.tolist(), response_start, response_end, gt_answer, strict=True
        ):
            prompt = [token for token, real in zip(ids[: int(start)], mask[: int(start)], strict=True) if real]
            response = ids[int(start) : int(end) + 1]
            samples.append(make_sample(self.tokenizer, prompt, response, gold=gold, tags=self.tags))
        totals = [result.total for result in self.score(samples)]
        return torch.tensor([float("nan") if t is None else t for t in totals], device=input_ids.device)

    def to(self, device: Any) -> "RLVRRewardModel":
        """Rules live on the CPU; here so that reward models of both kinds can be handled alike."""
        return self

    def eval(self) -> "RLVRRewardModel":
        """Rules have no training mode; here so that reward models of both kinds can be handled alike."""
        return self


class Scoring:
    """Scores on their way: samples are added as they are generated, and combined when all are there.

    Functions that ask for the whole batch get it: with one among them, scoring starts at `complete`.
    """

    def __init__(self, model: RLVRRewardModel) -> None:
        self.model = model
        self.samples: list[Sample] = []
        self.begun = 0
        self.waiting: list[Pending | list[list[Score]]] = []

    def add(self, samples: Sequence[Sample]) -> None:
        """Score these too; returns at once where worker processes do it."""
        self.samples.extend(samples)
        if not any(function.batched for function in self.model.rewards.functions):
            self.complete()

    def complete(self) -> None:
        """Begin to score all that was added."""
        batch, self.begun = self.samples[self.begun :], len(self.samples)
        if batch and self.model.pool is not None:
            self.waiting.append(self.model.pool.submit(batch))
        elif batch:
            self.waiting.append([call.score(function, batch) for function in self.model.rewards.functions])

    def result(self) -> list[Combined]:
        """The verdicts, in the order in which samples were added; waits for them.

        Raises:
            UserError: see `RLVRRewardModel.score`.
        """
        self.complete()
        parts = [part if isinstance(part, list) else part.result() for part in self.waiting]
        columns = [[one for part in parts for one in part[i]] for i in range(len(self.model.rewards.functions))]
        groups = [sample.prompt for sample in self.samples]
        self.model.last_results = self.model.rewards.combine(columns, groups)
        return self.model.last_results


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
    """What reward functions get to see of one response: texts without special tokens, and the problem's columns."""
    return Sample(
        response=tokenizer.decode(list(response_ids), skip_special_tokens=True),
        gold=gold,
        prompt=tokenizer.decode(list(prompt_ids), skip_special_tokens=False),
        question=question,
        tags=tags,
        response_ids=tuple(response_ids),
        finished=finished,
        columns=columns or {},
    )
