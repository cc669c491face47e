"""A slow, readable oracle of PPO for language models: what `rlvr` has to compute, written as the formulas stand.

Lists and floats, one unpadded sample at a time, no vectorisation, no cleverness: read it to check it. Torch appears
only in `model_logits`, to run a model on a single sample. Nothing of `rlvr` is imported.

A whole optimizer step, as a trainer's test would use it:

    rollouts = [Rollout(logprobs=..., ref_logprobs=..., values=..., score=...), ...]      # everything collected
    samples = make_experience(rollouts, kl_coef=0.05, gamma=1.0, lam=0.95)
    step = reference_step([(samples[i], new_logprobs[i], new_values[i]) for i in mini_batch], clip_range=0.2)
    step.policy_loss, step.value_loss
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Row = Sequence[float]
Flags = Sequence[bool]


# --- Responses and models ---------------------------------------------------------------------------------------------


def cut_response(ids: Sequence[int], stop_ids: Collection[int]) -> list[int]:
    """The tokens up to and with the first stop token."""
    kept = []
    for token in ids:
        kept.append(token)
        if token in stop_ids:
            break
    return kept


def model_logits(model: Any, ids: Sequence[int]) -> list[list[float]]:
    """[T][V] logits of a transformers causal LM on one sample without padding; row t predicts token t + 1."""
    import torch

    with torch.no_grad():
        logits: list[list[float]] = model(input_ids=torch.tensor([list(ids)])).logits[0].double().tolist()
    return logits


def log_softmax(logits: Row) -> list[float]:
    top = max(logits)
    log_total = top + math.log(sum(math.exp(z - top) for z in logits))
    return [z - log_total for z in logits]


def token_logprobs(
    logits: Sequence[Row], ids: Sequence[int], prompt_length: int, temperature: float = 1.0
) -> list[float]:
    """Logprob of each response token: that of token t comes from the logits at t - 1."""
    logprobs = []
    for t in range(prompt_length, len(ids)):
        distribution = log_softmax([z / temperature for z in logits[t - 1]])
        logprobs.append(distribution[ids[t]])
    return logprobs


def entropy(logits: Row, temperature: float = 1.0) -> float:
    """Entropy of softmax(logits / temperature), in nats."""
    logps = log_softmax([z / temperature for z in logits])
    return -sum(math.exp(logp) * logp for logp in logps if logp > -math.inf)


def token_entropies(
    logits: Sequence[Row], ids: Sequence[int], prompt_length: int, temperature: float = 1.0
) -> list[float]:
    """Entropy of the distribution that each response token was drawn from."""
    return [entropy(logits[t - 1], temperature) for t in range(prompt_length, len(ids))]


def token_values(outputs: Row, ids: Sequence[int], prompt_length: int) -> list[float]:
    """V(s_t) for each response token t from the critic's [T] outputs: the state before token t ends at t - 1."""
    return [outputs[t - 1] for t in range(prompt_length, len(ids))]


def mismatch_ratio(logprobs: Row, sampler_logprobs: Row, level: str) -> list[float]:
    """policy / sampler of each token, or one ratio for all tokens of the response: their product or a mean of them."""
    own = [math.exp(new - old) for new, old in zip(logprobs, sampler_logprobs, strict=True)]
    if level == "token" or not own:
        return own
    whole = {
        "sequence": math.prod(own), "geometric": math.prod(own) ** (1 / len(own)), "arithmetic": sum(own) / len(own),
    }[level]  # fmt: skip
    return [whole] * len(own)


def importance_weights(
    logprobs: Row, sampler_logprobs: Row, how: str, level: str, low: float, high: float
) -> list[float]:
    """Weights of one response's tokens that correct for another sampler."""
    judged = mismatch_ratio(logprobs, sampler_logprobs, level)
    if how == "truncate":
        return [min(max(ratio, low), high) for ratio in judged]
    by = mismatch_ratio(logprobs, sampler_logprobs, "sequence" if level == "sequence" else "token")
    return [weight if low <= ratio <= high else 0.0 for weight, ratio in zip(by, judged, strict=True)]


# --- Rewards and advantages of one sample -----------------------------------------------------------------------------


def kl_estimate(logprob: float, ref_logprob: float, kind: str, old_logprob: float | None = None) -> float:
    """Schulman's estimators of KL(policy || reference) at one token; `k3_weighted` times policy / policy that sampled."""
    log_r = ref_logprob - logprob
    k3 = math.exp(log_r) - 1 - log_r
    ratio = 1.0 if old_logprob is None else math.exp(logprob - old_logprob)
    return {"k1": -log_r, "k2": log_r**2 / 2, "k3": k3, "k3_weighted": ratio * k3}[kind]


def token_rewards(score: float, kl: Row, mask: Flags, kl_coef: float) -> list[float]:
    """-kl_coef * kl at each token that counts, and the score on the last of them."""
    counted = [t for t in range(len(mask)) if mask[t]]
    rewards = [0.0] * len(mask)
    for t in counted:
        rewards[t] = -kl_coef * kl[t]
    if counted:
        rewards[counted[-1]] += score
    return rewards


def gae(
    rewards: Row,
    values: Row,
    mask: Flags,
    gamma: float,
    lam: float,
    bootstrap: float = 0.0,
    turn_ends: Flags | None = None,
) -> list[float]:
    """A_t = sum over l of (gamma lam)^l delta_{t+l} over the tokens that count; 0 at the others. O(T^2).

    With `turn_ends` a factor is taken only where a turn has ended on the way.
    """
    counted = [t for t in range(len(mask)) if mask[t]]
    r = [rewards[t] for t in counted]
    v = [values[t] for t in counted] + [bootstrap]
    step = [1 if turn_ends is None or turn_ends[t] else 0 for t in counted]
    delta = [r[i] + gamma ** step[i] * v[i + 1] - v[i] for i in range(len(r))]
    advantages = [0.0] * len(mask)
    for i, t in enumerate(counted):
        advantages[t] = sum((gamma * lam) ** sum(step[i:j]) * delta[j] for j in range(i, len(r)))
    return advantages


def whiten(
    rows: Sequence[Row], masks: Sequence[Flags], shift_mean: bool = True, eps: float = 1e-8
) -> list[list[float]]:
    """All tokens that count, of all samples, to variance 1 (and mean 0 if `shift_mean`); 0 at the others."""
    flat = selected(rows, masks)
    mean = math.fsum(flat) / max(1, len(flat))
    variance = math.fsum((x - mean) ** 2 for x in flat) / max(1, len(flat))
    offset = 0.0 if shift_mean else mean
    return [
        [(x - mean) / math.sqrt(variance + eps) + offset if m else 0.0 for x, m in zip(row, mask, strict=True)]
        for row, mask in zip(rows, masks, strict=True)
    ]


# --- Losses of one token ----------------------------------------------------------------------------------------------


def policy_loss(
    logprob: float, old_logprob: float, advantage: float, low: float, high: float, dual_clip: float | None = None
) -> float:
    """PPO's clipped surrogate of one token, negated; with a dual clip at most -dual_clip * A where A < 0."""
    ratio = math.exp(logprob - old_logprob)
    objective = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    if dual_clip is not None and advantage < 0:
        objective = max(objective, dual_clip * advantage)
    return -objective


def policy_is_clipped(
    logprob: float, old_logprob: float, advantage: float, low: float, high: float, dual_clip: float | None = None
) -> bool:
    """Whether a bound takes the token's gradient away, case by case."""
    ratio = math.exp(logprob - old_logprob)
    if advantage > 0:
        return ratio > 1 + high
    if advantage < 0:
        return ratio < 1 - low or (dual_clip is not None and ratio > max(dual_clip, 1 - low))
    return False


def policy_gradient(
    logprob: float, old_logprob: float, advantage: float, low: float, high: float, dual_clip: float | None = None
) -> float:
    """d policy_loss / d logprob."""
    if policy_is_clipped(logprob, old_logprob, advantage, low, high, dual_clip):
        return 0.0
    return -advantage * math.exp(logprob - old_logprob)


def cispo(logprob: float, old_logprob: float, advantage: float, low: float, high: float) -> tuple[float, float, bool]:
    """MiniMax-M1's loss of one token, its gradient in the logprob, and whether the weight is at a bound."""
    ratio = math.exp(logprob - old_logprob)
    weight = min(max(ratio, 1 - low), 1 + high)
    return -weight * advantage * logprob, -weight * advantage, weight != ratio


def sapo(logprob: float, old_logprob: float, advantage: float, tau_pos: float, tau_neg: float) -> tuple[float, float]:
    """The gated loss of one token, and its gradient in the logprob: d ratio / d logprob is the ratio."""
    ratio = math.exp(logprob - old_logprob)
    tau = tau_pos if advantage > 0 else tau_neg
    p = 1 / (1 + math.exp(-tau * (ratio - 1)))
    return -p * 4 / tau * advantage, -4 * p * (1 - p) * ratio * advantage


def value_loss(value: float, old_value: float, target: float, clip: float | None) -> float:
    """Half the larger of the squared errors of the value and of the value kept within `clip` of the old one."""
    error = (value - target) ** 2
    if clip is not None:
        bounded = min(max(value, old_value - clip), old_value + clip)
        error = max(error, (bounded - target) ** 2)
    return 0.5 * error


def value_gradient(value: float, old_value: float, target: float, clip: float | None) -> float:
    """d value_loss / d value: none if the value has gone more than `clip` towards the target, and not far beyond it."""
    if clip is not None:
        bounded = min(max(value, old_value - clip), old_value + clip)
        if (bounded - target) ** 2 > (value - target) ** 2:
            return 0.0
    return value - target


# --- Whole batches ----------------------------------------------------------------------------------------------------


def selected(rows: Sequence[Row], masks: Sequence[Flags]) -> list[float]:
    """The entries that count, in order."""
    return [x for row, mask in zip(rows, masks, strict=True) for x, m in zip(row, mask, strict=True) if m]


def mean(rows: Sequence[Row], masks: Sequence[Flags]) -> float:
    """Mean over the entries that count; 0 without any. What a metric is."""
    flat = selected(rows, masks)
    return math.fsum(flat) / max(1, len(flat))


def aggregate(
    rows: Sequence[Row], masks: Sequence[Flags], mode: str = "token_mean", constant_tokens: int | None = None
) -> float:
    """Loss of a whole optimizer step from its per-token losses. Samples without a token that counts do not count."""
    per_sample = [selected([row], [mask]) for row, mask in zip(rows, masks, strict=True)]
    per_sample = [tokens for tokens in per_sample if tokens]
    if not per_sample:
        return 0.0
    if mode == "token_mean":
        return sum(sum(tokens) for tokens in per_sample) / sum(len(tokens) for tokens in per_sample)
    if mode == "sequence_mean":
        return sum(sum(tokens) / len(tokens) for tokens in per_sample) / len(per_sample)
    assert mode == "constant" and constant_tokens is not None
    return sum(sum(tokens) for tokens in per_sample) / (len(per_sample) * constant_tokens)


@dataclass(frozen=True)
class Rollout:
    """One response as it was collected; lists with one entry for each response token."""

    logprobs: Row
    ref_logprobs: Row
    values: Row
    score: float
    mask: Flags = ()
    """Tokens that count; empty means all."""
    bootstrap: float = 0.0
    """Value of the state after the last token, if the response was cut."""

    @property
    def flags(self) -> Flags:
        return self.mask or [True] * len(self.logprobs)


@dataclass(frozen=True)
class ReferenceSample:
    """What learning needs of one response."""

    logprobs: Row
    """Of the policy that sampled."""
    values: Row
    rewards: Row
    advantages: Row
    returns: Row
    mask: Flags


@dataclass(frozen=True)
class ReferenceStep:
    """Losses and metrics of one optimizer step, over all of its samples."""

    policy_loss: float
    value_loss: float
    approx_kl: float
    clip_fraction: float
    value_clip_fraction: float
    ratio: float
    per_token: list[list[float]] = field(default_factory=list)
    """The policy loss of each token."""


def make_experience(
    rollouts: Sequence[Rollout],
    *,
    kl_coef: float,
    gamma: float,
    lam: float,
    kl_kind: str = "k1",
    whiten_advantages: bool = True,
) -> list[ReferenceSample]:
    """KL-shaped rewards, GAE, returns, and advantages whitened over all rollouts (returns are not)."""
    samples = []
    for rollout in rollouts:
        pairs = zip(rollout.logprobs, rollout.ref_logprobs, strict=True)
        kl = [kl_estimate(logprob, ref_logprob, kl_kind) for logprob, ref_logprob in pairs]
        mask = rollout.flags
        rewards = token_rewards(rollout.score, kl, mask, kl_coef)
        advantages = gae(rewards, rollout.values, mask, gamma, lam, rollout.bootstrap)
        returns = [a + v if m else 0.0 for a, v, m in zip(advantages, rollout.values, mask, strict=True)]
        samples.append(ReferenceSample(rollout.logprobs, rollout.values, rewards, advantages, returns, mask))
    if not whiten_advantages:
        return samples
    white = whiten([s.advantages for s in samples], [s.mask for s in samples])
    return [replace(sample, advantages=row) for sample, row in zip(samples, white, strict=True)]


def reference_step(
    samples: Sequence[tuple[ReferenceSample, Row, Row]],
    *,
    clip_range: float,
    clip_range_high: float | None = None,
    dual_clip: float | None = None,
    value_clip: float | None = None,
    mode: str = "token_mean",
    constant_tokens: int | None = None,
) -> ReferenceStep:
    """Losses of one optimizer step over `(sample, new logprobs, new values)`, however a trainer splits them up."""
    bounds = (clip_range, clip_range if clip_range_high is None else clip_range_high, dual_clip)
    masks = [sample.mask for sample, _, _ in samples]
    # Per sample, one row per quantity: lists of (logprob, old logprob, advantage) and of (value, old value, return).
    policy = [list(zip(new, s.logprobs, s.advantages, strict=True)) for s, new, _ in samples]
    critic = [list(zip(new, s.values, s.returns, strict=True)) for s, _, new in samples]
    per_token = [[policy_loss(*token, *bounds) for token in row] for row in policy]
    value_losses = [[value_loss(*token, value_clip) for token in row] for row in critic]
    value_clipped = [[value_loss(*token, value_clip) > value_loss(*token, None) for token in row] for row in critic]
    return ReferenceStep(
        policy_loss=aggregate(per_token, masks, mode, constant_tokens),
        value_loss=aggregate(value_losses, masks, mode, constant_tokens),
        approx_kl=mean([[0.5 * (new - old) ** 2 for new, old, _ in row] for row in policy], masks),
        clip_fraction=mean([[policy_is_clipped(*token, *bounds) for token in row] for row in policy], masks),
        value_clip_fraction=mean(value_clipped, masks),
        ratio=mean([[math.exp(new - old) for new, old, _ in row] for row in policy], masks),
        per_token=per_token,
    )
