"""Metrics of collecting, and the summary of an episode.

The maker records sums and counts while it collects (`record_*`); at the end of an episode, when the meter has formed means over
all processes, `summarise` derives what needs more than one of them. Names are those of TRL's PPO, where `objective/*` are sums
over a response, averaged over responses; `docs/curves.md` explains each.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

import torch
from torch import Tensor

from rewards.combine import Combined
from rlvr.core.kl import kl_estimate
from rlvr.core.mismatch import BOUNDS, Correction, Level, importance_weights, log_ratios, ratios
from rlvr.experience.scoring import ModelScores
from rlvr.experience.verdicts import Verdicts
from rlvr.rollout.engine import Ended, Rollout
from rlvr.scorers.rules import metrics_of
from rlvr.tracking.meter import Meter


def record_totals(meter: Meter, totals: Tensor, scored: Tensor) -> None:
    """Record the pay of responses: the mean of [B] totals over those that are `scored` ([B]), whether they are trained on or not."""
    meter.add("objective/scores", totals[scored].sum(), scored.sum())
    meter.add("_scores_squared", totals[scored].double().square().sum(), scored.sum())


def record_groups(meter: Meter, with_signal: int, groups: int) -> None:
    """Record the share of groups (all responses to a prompt) whose scores differ, so that comparing them teaches something."""
    meter.add("objective/groups_with_signal", with_signal, groups)


def record_scores(meter: Meter, scores: ModelScores, kl: Tensor, non_score: Tensor, verdicts: Verdicts) -> None:
    """Record divergence and entropy ([B, R] each)."""
    mask, count = scores.mask, scores.mask.size(0)
    totals, scored = verdicts.totals.to(mask.device), verdicts.scored.to(mask.device)
    zero = torch.zeros_like(kl)
    meter.add("objective/kl", torch.where(mask, kl, zero).sum(), count)
    meter.add("objective/entropy", -torch.where(mask, scores.logprobs, zero).sum(), count)
    meter.add("objective/non_score_reward", non_score.sum(), count)
    meter.add("objective/rlhf_reward", (non_score.sum(1) + totals)[scored].sum(), scored.sum())
    if scores.ref_logprobs is not None:
        # ColossalChat's, with its estimator, in which policy and reference are the other way round than in `k3`.
        meter.add_tokens("approx_kl", kl_estimate(scores.ref_logprobs, scores.logprobs, "k3"), mask)
    if scores.entropy is not None:
        meter.add_tokens("policy/entropy_avg", scores.entropy, mask)


def record_values(meter: Meter, values: Tensor, returns: Tensor, mask: Tensor) -> None:
    """Record values ([B, R]), and how well they foretell the plain returns ([B, R]) of the tokens that are trained on.

    Plain returns whatever the critic's targets are: at a lambda below 1 these hold the values of later tokens, so that a
    critic which says the same all along a response would explain them, right or wrong.
    """
    meter.add_tokens("value", values, mask)
    # Ingredients of the explained variance. As sums, because a mean of the ranks' own variances would be another number.
    meter.add_tokens("_returns", returns, mask)
    meter.add_tokens("_returns_squared", returns**2, mask)
    meter.add_tokens("_residuals", returns - values, mask)
    meter.add_tokens("_residuals_squared", (returns - values) ** 2, mask)


def record_samples(
    meter: Meter, rollouts: Sequence[Rollout], results: Sequence[Combined], stop_ids: Sequence[int]
) -> None:
    """Record lengths, endings, and the verdicts of the reward functions."""
    for rollout, result in zip(rollouts, results, strict=True):
        meter.add("response/length_tokens", len(rollout.action_ids))
        meter.add("response/truncated", float(not rollout.finished))
        meter.add_count("val/num_eos_tokens", int(torch.isin(rollout.action_ids, torch.tensor(list(stop_ids))).sum()))
        for name, value in (metrics_of(result) | _metrics_of_episode(rollout)).items():
            meter.add(name, value)


def _metrics_of_episode(rollout: Rollout) -> dict[str, float]:
    """An episode's share in the metrics of an environment; none without one."""
    if rollout.end is None:
        return {}
    ended = {f"environment/ended_{why}": float(rollout.end.ended == why) for why in get_args(Ended)}
    tokens = len(rollout.response_ids) - len(rollout.action_ids)
    return {"environment/turns": rollout.end.turns, "environment/length_tokens": tokens, **ended}


def record_mismatch(
    meter: Meter, logprobs: Tensor, sampler_logprobs: Tensor, mask: Tensor, correction: Correction
) -> None:
    """Record how far the engine's probabilities are from the trainer's ([B, R] each), and what a correction does about it.

    The shares outside bounds are those of `BOUNDS` whatever the correction's own are, so that runs can be compared.
    """
    log_ratio, some = log_ratios(logprobs, sampler_logprobs), mask.any(dim=1)
    meter.add_tokens("sampler/delta_avg", log_ratio.abs(), mask)
    meter.add_max("sampler/delta_max", log_ratio.abs(), mask)
    meter.add_tokens("sampler/kl", kl_estimate(sampler_logprobs.double(), logprobs.double(), "k3"), mask)
    meter.add_tokens("sampler/tokens_outside", _outside(log_ratio, mask, "token"), mask)
    meter.add_tokens("sampler/responses_outside", _outside(log_ratio, mask, "sequence")[:, 0], some)
    if correction.how != "none":
        weights = importance_weights(logprobs, sampler_logprobs, mask, correction)
        judged = ratios(log_ratio, mask, correction.level)
        meter.add_tokens("sampler/weight_avg", weights, mask)
        meter.add_tokens("sampler/corrected", ((judged < correction.low) | (judged > correction.high)).float(), mask)


def record_staleness(meter: Meter, rollouts: Sequence[Rollout], version: int) -> None:
    """Record of how many episodes before the weights of now, those after `version` episodes, each token was sampled."""
    ages = version - torch.cat([rollout.versions for rollout in rollouts if rollout.versions is not None])
    everywhere = torch.ones_like(ages, dtype=torch.bool)
    meter.add_tokens("sampler/staleness_avg", ages, everywhere)
    meter.add_max("sampler/staleness_max", ages, everywhere)


def _outside(log_ratio: Tensor, mask: Tensor, level: Level) -> Tensor:
    """[B, R] 1 where the ratio at this level is beyond its usual bounds, else 0."""
    (low, high), found = BOUNDS[level], ratios(log_ratio, mask, level)
    return ((found < low) | (found > high)).float()


# ColossalChat's names of the same quantities.
ALIASES = {
    "reward": "objective/scores",
    "train/lr_actor": "lr",
    "token_cost": "response/length_tokens",
}


def summarise(means: Mapping[str, float]) -> dict[str, float]:
    """An episode's metrics from the meter's means. Names with a leading underscore are ingredients of others, and left out."""
    metrics = {name: value for name, value in means.items() if not name.startswith("_")}
    if "_ratio_squared" in means:
        metrics["val/ratio_var"] = max(0.0, means["_ratio_squared"] - means["val/ratio"] ** 2)
    if "_returns_squared" in means:
        spread = means["_returns_squared"] - means["_returns"] ** 2
        residual = means["_residuals_squared"] - means["_residuals"] ** 2
        metrics["critic/explained_variance"] = 1 - residual / spread if spread > 1e-12 else 0.0
    if "_scores_squared" in means:
        metrics["objective/scores_std"] = max(0.0, means["_scores_squared"] - means["objective/scores"] ** 2) ** 0.5
    for alias, name in ALIASES.items():
        if name in metrics:
            metrics[alias] = metrics[name]
    return metrics
