"""Per-token losses of PPO, and the one function that sums them up: `rlvr.trainer.ppo_update` calls them for each
micro-batch, then goes through `Boosted.learn`.

The per-token functions know no mask. What is not finite in their inputs (padding may hold anything) becomes NaN in
their outputs and has no gradient; `aggregate` leaves out what is masked, so only a token that counts can show a NaN.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlvr.core.masked import all_finite, at_least_float32, bounded_exp, masked_mean, masked_sum, nan_unless, zero_unless

LossMode = Literal["token_mean", "sequence_mean", "constant"]


@dataclass(frozen=True)
class StepSize:
    """Totals of one optimizer step, over all of its micro-batches and all ranks."""

    tokens: float
    """Tokens that count."""
    sequences: float
    """Responses with at least one token that counts."""

    @classmethod
    def from_mask(cls, mask: Tensor) -> "StepSize":
        """The totals of one [B, R] mask; those of micro-batches and ranks add up."""
        return cls(tokens=float(mask.bool().sum()), sequences=float(mask.bool().any(dim=1).sum()))


def aggregate(
    per_token: Tensor, mask: Tensor, size: StepSize, mode: LossMode, constant_tokens: int | None = None
) -> Tensor:
    """This micro-batch's share of the loss of an optimizer step, a scalar.

    The divisor is that of the whole step. So the shares *add up* to the same loss, and their gradients to the same
    gradient, however the step is split into micro-batches and over ranks; a mean of means would weigh the tokens of
    short responses more or less by chance. Whoever averages gradients over ranks (as DDP does) must multiply the share
    by the number of ranks.

    - `token_mean`: every token weighs the same (DAPO, arXiv:2503.14476).
    - `sequence_mean`: every response weighs the same: the mean over its tokens, then over responses.
    - `constant`: the sum over tokens, divided by responses * `constant_tokens`; the length of a response then does not
      change the weight of its tokens (Dr. GRPO, arXiv:2503.20783).

    Args:
        per_token: [B, R]; masked positions may hold anything.
        mask: [B, R] true on the tokens that count.
        size: totals of the step; equal on all ranks.
        mode: see above.
        constant_tokens: for `constant`, such as the most tokens a response may have.

    Returns:
        A scalar; 0, still with a path for gradients, if nothing counts.

    Raises:
        ValueError: an unknown mode, or `constant` without a positive `constant_tokens`.
    """
    if mode == "token_mean":
        return masked_sum(per_token, mask) / (size.tokens or 1.0)
    if mode == "sequence_mean":
        return masked_mean(per_token, mask, dim=1).sum() / (size.sequences or 1.0)
    if mode == "constant":
        if constant_tokens is None or constant_tokens < 1:
            raise ValueError(f"mode 'constant' needs constant_tokens of at least 1, got {constant_tokens}")
        return masked_sum(per_token, mask) / ((size.sequences or 1.0) * constant_tokens)
    raise ValueError(f"unknown mode {mode!r}; there are 'token_mean', 'sequence_mean' and 'constant'")


@dataclass(frozen=True)
class PolicyLoss:
    """Per token; only `loss` has a gradient."""

    loss: Tensor
    ratio: Tensor
    """Probability under the policy / probability under the policy that sampled."""
    clipped: Tensor
    """True where a bound is active. Its mean is the clip fraction."""
    approx_kl: Tensor
    """0.5 * (logprobs - old_logprobs)², the estimate k2, which TRL calls approxkl."""


def clipped_policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_range: float,
    clip_range_high: float | None = None,
    dual_clip: float | None = None,
) -> PolicyLoss:
    """PPO's clipped surrogate, negated (Schulman et al. 2017, arXiv:1707.06347, eq. 7); any shape.

    max(-A r, -A clip(r, 1 - clip_range, 1 + clip_range_high)). The bound takes the gradient away only where the ratio
    r has already moved the way that A asks for. A ratio on the wrong side keeps its gradient, however far off it is.

    Args:
        logprobs: of the policy that learns.
        old_logprobs: of the policy that sampled.
        advantages: A.
        clip_range: how far the ratio may fall below 1.
        clip_range_high: how far it may rise above 1; by default as far. (DAPO's "clip higher", arXiv:2503.14476.)
        dual_clip: c > 1: where A < 0 the loss is at most -c A (Ye et al. 2020, arXiv:1912.09729, eq. 5).

    Raises:
        ValueError: a negative range, or a `dual_clip` that is not above 1.
    """
    high = clip_range if clip_range_high is None else clip_range_high
    if not (clip_range >= 0 and high >= 0):
        raise ValueError(f"clip ranges must not be negative, got {clip_range} and {high}")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip must be above 1 (or None for none), got {dual_clip}")
    move = _Move.of(logprobs, old_logprobs, advantages)
    ratio, gain = move.ratio, move.gain
    free = -gain * ratio
    bound = -gain * ratio.clamp(1.0 - clip_range, 1.0 + high)
    loss = torch.maximum(free, bound)
    clipped = bound > free  # strictly: inside the range both are equal, and the gradient flows
    if dual_clip is not None:
        ceiling = -dual_clip * gain
        over = (gain < 0) & (loss > ceiling)
        loss = torch.where(over, ceiling, loss)
        clipped = clipped | over
    return move.result(loss, clipped)


def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_range: float,
    clip_range_high: float | None = None,
) -> PolicyLoss:
    """CISPO: -sg(clip(r, 1 - clip_range, 1 + clip_range_high)) A log p; any shape (MiniMax-M1, arXiv:2506.13585, eq. 4 and 5).

    The bounded ratio is a weight without a gradient, so that no token loses its own: `clipped` tokens here learn with the bound
    as their weight. The paper has no lower bound, which is a `clip_range` of 1.

    Args:
        logprobs, old_logprobs, advantages: as for `clipped_policy_loss`.
        clip_range, clip_range_high: how far the weight may be below and above 1; by default as far.

    Raises:
        ValueError: a negative range.
    """
    high = clip_range if clip_range_high is None else clip_range_high
    if not (clip_range >= 0 and high >= 0):
        raise ValueError(f"clip ranges must not be negative, got {clip_range} and {high}")
    move = _Move.of(logprobs, old_logprobs, advantages)
    ratio = move.ratio.detach()
    weight = ratio.clamp(max(0.0, 1.0 - clip_range), 1.0 + high)
    # In this order: an advantage of padding may be so large that weight x advantage is infinite, and 0 x infinity is NaN.
    return move.result(-move.gain * (weight * move.logprobs), weight != ratio)


def sapo_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, tau_pos: float, tau_neg: float
) -> PolicyLoss:
    """SAPO: -(4 / tau) sigmoid(tau (r - 1)) A, a gate in place of a bound; any shape (Gao et al. 2025, arXiv:2511.20347, eq. 5, 6).

    Its slope in the ratio r is 4 p (1 - p) with p the sigmoid: 1 at r = 1, as without a gate, and falling smoothly on both sides,
    the faster the greater tau. Nothing counts as `clipped`.

    Args:
        logprobs, old_logprobs, advantages: as for `clipped_policy_loss`.
        tau_pos: tau where A > 0.
        tau_neg: tau elsewhere; the paper's is greater, as pushing a token down lifts all others.

    Raises:
        ValueError: a tau that is not above 0.
    """
    if not (tau_pos > 0 and tau_neg > 0):
        raise ValueError(f"tau must be above 0, got {tau_pos} and {tau_neg}")
    move = _Move.of(logprobs, old_logprobs, advantages)
    tau = torch.full_like(move.gain, tau_neg).masked_fill(move.gain > 0, tau_pos)
    gate = torch.sigmoid(tau * (move.ratio - 1.0)) * 4.0 / tau
    return move.result(-gate * move.gain, torch.zeros_like(move.finite))


def kl_cov_penalty(logprobs: Tensor, old_logprobs: Tensor, penalised: Tensor) -> Tensor:
    """|log p - log p_old| of the tokens that KL-Cov holds back, 0 elsewhere; any shape.

    Cui et al. 2025, arXiv:2505.22617, sec. 4.2: a divergence from the policy that sampled, for which their published code takes the
    absolute difference.
    """
    difference = at_least_float32(logprobs) - at_least_float32(old_logprobs).detach()
    return zero_unless(penalised, difference).abs()


@dataclass(frozen=True)
class _Move:
    """What the policy losses compute with, where it is finite: elsewhere 0, without a gradient."""

    finite: Tensor
    logprobs: Tensor
    log_ratio: Tensor
    ratio: Tensor
    gain: Tensor
    """The advantages."""

    @classmethod
    def of(cls, logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor) -> "_Move":
        new = at_least_float32(logprobs)
        difference = new - at_least_float32(old_logprobs).detach()
        finite = all_finite(difference, advantages)
        log_ratio = zero_unless(finite, difference)
        gain = zero_unless(finite, at_least_float32(advantages).detach())
        return cls(finite, zero_unless(finite, new), log_ratio, bounded_exp(log_ratio), gain)

    def result(self, loss: Tensor, clipped: Tensor) -> PolicyLoss:
        """NaN where the inputs were not finite."""
        return PolicyLoss(
            loss=nan_unless(self.finite, loss),
            ratio=nan_unless(self.finite, self.ratio.detach()),
            clipped=clipped.detach(),
            approx_kl=nan_unless(self.finite, 0.5 * self.log_ratio.detach().square()),
        )


def sequence_logprobs(logprobs: Tensor, old_logprobs: Tensor, mask: Tensor) -> Tensor:
    """[B, R] stand-ins for `logprobs` that give `clipped_policy_loss` the ratio of the whole response at each token.

    The ratio is s = exp(mean over tokens of (logprobs - old_logprobs)), the likelihoods' ratio to the power 1 / length,
    and its gradient at token t is s * d logprob_t (GSPO-token: Zheng et al. 2025, arXiv:2507.18071, eq. 13 and 14). Where
    the tokens of a response share one advantage, `sequence_mean` of the loss is GSPO's (eq. 5), value and gradient.

    Args:
        logprobs, old_logprobs: [B, R]; masked positions may hold anything.
        mask: [B, R] true on the tokens that count.
    """
    new, old = at_least_float32(logprobs), at_least_float32(old_logprobs).detach()
    mean = masked_mean(new.detach() - old, mask, dim=1)[:, None]  # [B, 1]
    return old + mean + (new - new.detach())  # the last term is 0, and carries the gradient


@dataclass(frozen=True)
class ValueLoss:
    """Per token; only `loss` has a gradient."""

    loss: Tensor
    clipped: Tensor
    """True where the bound is active, that is, where the token has no gradient."""


def clipped_value_loss(values: Tensor, old_values: Tensor, returns: Tensor, *, value_clip: float | None) -> ValueLoss:
    """0.5 * max((v - returns)², (clip(v, old - value_clip, old + value_clip) - returns)²); any shape.

    The clipped loss of OpenAI's baselines (ppo2): a critic that has moved by more than `value_clip` towards the return
    gets no gradient to move on; one that has moved away from it does.

    Args:
        values: of the critic that learns.
        old_values: of the critic when the responses were scored.
        returns: targets.
        value_clip: how far a value may move; None for the plain squared error.

    Raises:
        ValueError: a negative `value_clip`.
    """
    if value_clip is not None and not value_clip >= 0:
        raise ValueError(f"value_clip must not be negative (None for none), got {value_clip}")
    new, old, target = at_least_float32(values), at_least_float32(old_values), at_least_float32(returns)
    finite = all_finite(new - target, old - target)
    new, old, target = (zero_unless(finite, x) for x in (new, old.detach(), target.detach()))
    error = new - target
    loss = 0.5 * error * error
    clipped = torch.zeros_like(finite)
    if value_clip is not None:
        bounded_error = new.clamp(old - value_clip, old + value_clip) - target
        bounded_loss = 0.5 * bounded_error * bounded_error
        clipped = (bounded_loss > loss).detach()
        loss = torch.maximum(loss, bounded_loss)
    return ValueLoss(loss=nan_unless(finite, loss), clipped=clipped)


def lm_loss(logprobs: Tensor) -> Tensor:
    """Negative log-likelihood of each token, in nats, for supervised and ptx batches; any shape."""
    return -at_least_float32(logprobs)
