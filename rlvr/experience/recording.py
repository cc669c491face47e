"""Metrics of collecting, named as TRL's PPO named them: `objective/*` are sums over a response, averaged over responses."""

from collections.abc import Sequence

import torch
from torch import Tensor

from rewards.combine import Combined
from rlvr.experience.scoring import ModelScores
from rlvr.metrics import Meter
from rlvr.rewarding import metrics_of
from rlvr.rollout.engine import Rollout


def record_totals(meter: Meter, totals: Tensor, counted: Tensor) -> None:
    """What the responses were paid: [B] totals, over the `counted` ones."""
    meter.add("objective/scores", totals[counted].sum(), counted.sum())
    meter.add("_scores_squared", totals[counted].double().square().sum(), counted.sum())


def record_groups(meter: Meter, with_signal: int, groups: int) -> None:
    """In how many of the groups (all responses to a prompt) the scores differ, so that comparing them teaches something."""
    meter.add("objective/groups_with_signal", with_signal, groups)


def record_scores(
    meter: Meter,
    scores: ModelScores,
    kl: Tensor,
    non_score: Tensor,
    totals: Tensor,
    trained: Tensor,
    returns: Tensor | None,
) -> None:
    """What the models said: divergence, entropy, values ([B, R] each) and how well the values foretell the returns."""
    mask, count = scores.mask, scores.mask.size(0)
    zero = torch.zeros_like(kl)
    meter.add("objective/kl", torch.where(mask, kl, zero).sum(), count)
    meter.add("objective/entropy", -torch.where(mask, scores.logprobs, zero).sum(), count)
    meter.add("objective/non_score_reward", non_score.sum(), count)
    meter.add("objective/rlhf_reward", (non_score.sum(1) + totals)[trained].sum(), trained.sum())
    if scores.entropy is not None:
        meter.add_tokens("policy/entropy_avg", scores.entropy, mask)
    if scores.values is None or returns is None:
        return
    meter.add_tokens("value", scores.values, mask)
    # Sums from which the share of the returns' variance that the critic explains is formed, over all ranks.
    meter.add_tokens("_returns", returns, mask)
    meter.add_tokens("_returns_squared", returns**2, mask)
    meter.add_tokens("_residuals", returns - scores.values, mask)
    meter.add_tokens("_residuals_squared", (returns - scores.values) ** 2, mask)


def record_samples(
    meter: Meter, rollouts: Sequence[Rollout], results: Sequence[Combined], stop_ids: Sequence[int]
) -> None:
    """Lengths, ends, and the verdicts of the reward functions."""
    for rollout, result in zip(rollouts, results, strict=True):
        meter.add("response/length_tokens", len(rollout.response_ids))
        meter.add("response/truncated", float(not rollout.finished))
        meter.add_count("val/num_eos_tokens", int(torch.isin(rollout.response_ids, torch.tensor(list(stop_ids))).sum()))
        for name, value in metrics_of(result).items():
            meter.add(name, value)


def record_importance(meter: Meter, weights: Tensor, cap: float, mask: Tensor) -> None:
    """How far the engine's probabilities are from the trainer's: mean weight, and the share that the cap cut."""
    meter.add_tokens("sampler/weight_avg", weights, mask)
    meter.add_tokens("sampler/capped", (weights >= cap).float(), mask)
