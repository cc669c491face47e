"""The divergence of the policy from the reference, estimated at each sampled token, and what it does to rewards.

In a step: `kl_estimate` on the logprobs of actor and reference, then `token_rewards`, which subtracts it from the score (or it
is a term of the loss; `SUITED` says which estimate draws the policy to the reference from which place); after the step
`adapted_kl_coef`, if the coefficient follows a target.

Sources: J. Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html; on the gradients Tang and Munos
2025, arXiv:2506.09477. `python -m benchmarks.kl_places` trains with each estimate in each place; docs/off_policy.md has its table.
"""

import math
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor

from rlvr.core.masked import all_finite, at_least_float32, bounded_exp, nan_unless, zero_unless

KLKind = Literal["k1", "k2", "k3", "k3_weighted"]
KLPlace = Literal["reward", "loss"]

SUITED: Mapping[KLPlace, tuple[KLKind, ...]] = {"reward": ("k1",), "loss": ("k3_weighted", "k2", "k3")}
"""The estimates that draw the policy to the reference from each place; the first is taken where none is given."""
WHY_NOT: Mapping[KLPlace, str] = {
    "reward": "draws the policy nowhere in particular: the gradient is that of the logprob times the estimate's value, which is "
    "that of the divergence for k1 alone",
    "loss": "has no force: its mean gradient is zero",
}
"""Why the other estimates are wrong there."""


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, kind: KLKind, old_logprobs: Tensor | None = None) -> Tensor:
    """Estimate of the divergence at each token, in nats; any shape.

    With d = logprobs - ref_logprobs:

    - `k1` = d: unbiased, of either sign, large variance.
    - `k2` = d² / 2: biased and never negative.
    - `k3` = exp(-d) - 1 + d: unbiased and never negative.
    - `k3_weighted` = k3 times the ratio r = exp(logprobs - old_logprobs): unbiased for the policy that learns, whichever has
      sampled (DeepSeek-V3.2, arXiv:2512.02556, section 3.1).

    In the reward an estimate is a constant, and the gradient is that of the policy's logprob times its value: with `k1` that of
    KL(policy || reference); with `k3` that less the gradient of KL(reference || policy), which cancel each other near the
    reference; with `k2` neither. In the loss it is the estimate's own: zero in the mean for `k1`; d x the gradient of the logprob
    for `k2`, which is that of KL(policy || reference) as long as this policy has sampled; that of KL(reference || policy) for
    `k3`; and r x d x the gradient of the logprob for `k3_weighted`, which stays right in later steps on the same responses.

    Exponents are bounded (`masked.MAX_LOG_RATIO`), so the result stays finite. What is not finite in the inputs gives NaN
    in all but `k1`, without harm to the gradient of other tokens.

    Args:
        logprobs: of the policy that learns.
        ref_logprobs: of the reference.
        kind: see above.
        old_logprobs: of the policy that sampled, read by `k3_weighted` alone; None: the policy itself, so r = 1.

    Raises:
        ValueError: an unknown kind.
    """
    new = at_least_float32(logprobs)
    difference = new - at_least_float32(ref_logprobs)
    if kind == "k1":
        return difference  # linear: nothing can overflow, and a NaN stays one
    finite = all_finite(difference)
    d = zero_unless(finite, difference)
    if kind == "k2":
        return nan_unless(finite, 0.5 * d * d)
    k3 = bounded_exp(-d) - 1.0 + d
    if kind == "k3":
        return nan_unless(finite, k3)
    if kind == "k3_weighted":
        log_ratio = new - (new if old_logprobs is None else at_least_float32(old_logprobs)).detach()
        finite = finite & all_finite(log_ratio)
        return nan_unless(finite, bounded_exp(zero_unless(finite, log_ratio)) * k3)
    raise ValueError(f"unknown KL estimate {kind!r}; there are 'k1', 'k2', 'k3' and 'k3_weighted'")


LEAST_KL_COEF = 1e-6
"""As good as none, and near enough to what matters to come back from."""


def adapted_kl_coef(coef: float, kl: float, target: float, samples: float, horizon: float) -> float:
    """The coefficient that draws the divergence to its target (Ziegler et al. 2019, arXiv:1909.08593, section 2.2).

    coef * (1 + e * min(1, samples / horizon)), with the relative error e = (kl - target) / target clipped to +-0.2. The paper
    multiplies by 1 + 0.1 e after each batch; its code counts samples, so that the batch size does not matter, but for a batch of
    more than 5 horizons far below the target it gives 0, which no factor leads away from. So one mean moves the coefficient by a
    fifth at most, and never below `LEAST_KL_COEF` (unless it is there already).

    Args:
        coef: so far.
        kl: mean divergence of a response, summed over its tokens, in nats.
        target: what it should be.
        samples: responses that `kl` is the mean of.
        horizon: responses after which an error of 100 % would double the coefficient, were it not clipped.

    Raises:
        ValueError: a target or horizon that is not above 0.
    """
    if not (target > 0 and horizon > 0):
        raise ValueError(f"target and horizon must be above 0, got {target} and {horizon}")
    if not math.isfinite(kl):
        return coef  # a broken batch says nothing about the divergence
    error = min(max(kl / target - 1.0, -0.2), 0.2)
    return max(coef * (1.0 + error * min(1.0, samples / horizon)), min(coef, LEAST_KL_COEF))


def token_rewards(scores: Tensor, kl: Tensor, mask: Tensor, kl_coef: float) -> tuple[Tensor, Tensor]:
    """Rewards of the tokens: `-kl_coef * kl` at each, and the score once, on the last response token.

    Args:
        scores: [B] score of each response.
        kl: [B, R] divergence from the reference model at each token.
        mask: [B, R] true on response tokens.
        kl_coef: price of one nat.

    Returns:
        `(rewards, non_score)`, both [B, R], 0 outside the mask; `non_score` is the KL part alone. A sample without
        tokens has nothing to put its score on: zeros.
    """
    mask = mask.bool()
    non_score = torch.where(mask, -kl_coef * at_least_float32(kl), 0.0)
    return torch.where(last_token(mask), non_score + scores[:, None].to(non_score.dtype), non_score), non_score


def last_token(mask: Tensor) -> Tensor:
    """[B, R] true on the last selected column of each row and nowhere else; nowhere at all in an empty row."""
    counts = mask.long().cumsum(dim=1)  # not the last column of the mask: foreign tokens may stand between and after
    return mask.bool() & (counts == mask.long().sum(dim=1, keepdim=True))
