"""Engine and trainer: how far the probabilities that sampled are from those that are trained, and weights that correct for it.

An engine with other kernels or another precision, or one that still has the weights of the last update, samples from mu where
the gradient asks for pi. The ratio of a token is pi / mu; of a response, the product of its tokens' ratios, or a mean of them.
`importance_weights` makes weights of the policy loss of these ratios by a `Correction`; `drifted` finds the responses that
DeepSeek-V3.2 leaves out. `rlvr.experience.metrics` records how far the two are apart, whether it is corrected or not.

Weighed by the ratio of the whole response without bounds, the mean gradient is exact whatever has sampled, and its variance
grows with the length; every bound trades some of this variance for bias. Weighed by their own ratios, tokens keep a bias from the
others' (those before change which states are met, those after what follows), and the variance of a single token.

Sources: Ionides 2008 (truncated importance sampling); Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy
RL Training" (tokens, truncated); Liu et al. 2025, "When Speed Kills Stability" (responses, masked; geometric mean); Ling et al. 2025,
arXiv:2510.18855 (IcePop: tokens, masked between two bounds); DeepSeek-V3.2, arXiv:2512.02556, section 3.1 (`drifted`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlvr.core.masked import all_finite, at_least_float32, bounded_exp, masked_mean, masked_sum, nan_unless, zero_unless

How = Literal["none", "truncate", "mask"]
Level = Literal["token", "sequence", "geometric", "arithmetic"]

BOUNDS: Mapping[Level, tuple[float, float]] = {
    "token": (0.5, 2.0),
    "sequence": (1 / 3, 3.0),
    "geometric": (0.99, 1.01),
    "arithmetic": (0.9, 1.1),
}
"""Usual bounds of the ratio at each level. The geometric mean is the likelihoods' ratio to the power 1 / length, so it varies least."""


@dataclass(frozen=True)
class Correction:
    """What is done about ratios.

    Attributes:
        how: `truncate` brings a ratio beyond a bound to that bound; `mask` leaves the token or response out; `none` weighs nothing.
        level: the ratio that is compared with the bounds: each token's; the response's (`sequence`, the product over its tokens); or
            the geometric or arithmetic mean over its tokens, which says how far apart the two are whatever the length.
        low, high: the bounds.
    """

    how: How = "none"
    level: Level = "token"
    low: float = 0.0
    high: float = 2.0


def log_ratios(logprobs: Tensor, sampler_logprobs: Tensor) -> Tensor:
    """log pi - log mu of each token, without gradient; any shape."""
    return at_least_float32(logprobs).detach() - at_least_float32(sampler_logprobs).detach()


def ratios(log_ratio: Tensor, mask: Tensor, level: Level) -> Tensor:
    """[B, R] the ratio that each token is judged by: its own, or one for all tokens of a response.

    Args:
        log_ratio: [B, R] of `log_ratios`; masked positions may hold anything.
        mask: [B, R] true on the tokens that count.
    """
    finite = all_finite(log_ratio)
    own = nan_unless(finite, bounded_exp(zero_unless(finite, log_ratio)))
    if level == "token":
        return own
    if level == "arithmetic":
        return masked_mean(own, mask, dim=1)[:, None].expand_as(log_ratio)
    exponent = (masked_sum if level == "sequence" else masked_mean)(log_ratio, mask, dim=1)
    known = all_finite(exponent)
    return nan_unless(known, bounded_exp(zero_unless(known, exponent)))[:, None].expand_as(log_ratio)


def importance_weights(logprobs: Tensor, sampler_logprobs: Tensor, mask: Tensor, correction: Correction) -> Tensor:
    """[B, R] weight of each token's policy loss. Without gradient; NaN where a ratio that counts is not finite.

    - `truncate`: the ratio at the level, brought into the bounds.
    - `mask`: 0 where the ratio at the level is outside the bounds, and inside them the ratio: the token's own, or with `sequence` the
      response's. (A mean tells which response to leave out; it is no ratio of probabilities to weigh by.)

    Args:
        logprobs: [B, R] of the sampled tokens under the model in the trainer, at the time of sampling.
        sampler_logprobs: [B, R] as the engine gave them.
        mask: [B, R] true on the tokens that count.
        correction: not "none".

    Raises:
        ValueError: bounds that are no interval, or a mean that is to be truncated.
    """
    c = correction
    if not 0 <= c.low < c.high:
        raise ValueError(f"the bounds of importance weights must be an interval above 0, got {c.low} to {c.high}")
    log_ratio = log_ratios(logprobs, sampler_logprobs)
    judged = ratios(log_ratio, mask, c.level)
    if c.how == "mask":
        weight = judged if c.level in ("token", "sequence") else ratios(log_ratio, mask, "token")
        kept = torch.where((judged >= c.low) & (judged <= c.high), weight, 0.0)
        return torch.where(judged.isnan(), judged, kept)
    if c.how == "truncate" and c.level in ("token", "sequence"):
        return judged.clamp(c.low, c.high)
    raise ValueError(f"no weights are made by {c.how!r} at the level {c.level!r}")


def drifted(logprobs: Tensor, sampler_logprobs: Tensor, advantages: Tensor, mask: Tensor, threshold: float) -> Tensor:
    """[B, R] true on tokens with a negative advantage in responses that the policy has gone far from.

    Far: the mean over tokens of log mu - log pi, an estimate of KL(mu || pi) a token, is above the threshold. Pushing down what the
    policy would hardly say any more teaches little and is what makes stale samples harmful; pushing it up does no harm (DeepSeek-V3.2,
    arXiv:2512.02556, section 3.1, eq. 9).

    Args:
        logprobs: [B, R] of the policy as it is now.
        sampler_logprobs: [B, R] of the policy that sampled, as the engine gave them where it does.
        advantages: [B, R].
        mask: [B, R] true on the tokens that count.
        threshold: nats a token, above 0.
    """
    far = masked_mean(-log_ratios(logprobs, sampler_logprobs), mask, dim=1) > threshold  # [B]
    return far[:, None] & (advantages < 0)
