"""Advantage estimators: from the rewards of a batch's tokens to the advantage of each, and the critic's targets.

Each is one function from `AdvantageInputs` to `AdvantageOutputs`, registered with what it needs; the trainer, the flags
and the checks follow from that, so that an estimator is added in this file alone (CONTRIBUTING.md). They run once for each
collected batch, after scoring and before the first mini-batch; whitening comes later, over all ranks
(`rlvr.experience.experience`).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches

import torch
from torch import Tensor

from rlvr.core.masked import at_least_float32


@dataclass(frozen=True)
class AdvantageInputs:
    """The batch, as estimators see it. Masked positions may hold anything. The last ones are None where no
    estimator needs them."""

    rewards: Tensor
    """[B, R] reward of each token."""
    values: Tensor | None
    """[B, R] V(s_t), before token t; None without a critic."""
    mask: Tensor
    """[B, R] true on tokens that the policy chose; false on padding and on foreign tokens inside a response."""
    gamma: float
    """Discount per step: per token, or per turn (`turn_ends`)."""
    lam: float
    """Lambda of GAE."""
    critic_lam: float | None = None
    """Lambda of the critic's targets; None = the same as for the advantages."""
    lam_alpha: float | None = None
    """Replaces `lam` by 1 - 1 / (lam_alpha * length of the response), but not below 0."""
    bootstrap: Tensor | None = None
    """[B] value of the state after the last token, for responses that were cut; 0 (or None) where they ended."""
    groups: Tensor | None = None
    """[B] integers, equal for the responses to one prompt."""
    scored: Tensor | None = None
    """[B] false for responses that no reward function applied to: they have no part in statistics; None = all have."""
    greedy_scores: Tensor | None = None
    """[B] score of the greedy response to the same prompt."""
    score_norms: Tensor | None = None
    """[B, R] squared norm of the score function at each token (`score_norms`)."""
    turn_ends: Tensor | None = None
    """[B, R] true on the last token of each turn, where `turns` are the steps that are discounted: gamma and lambda are taken there
    and nowhere else. None = every token is a step."""


@dataclass(frozen=True)
class AdvantageOutputs:
    """The targets of learning; both [B, R], 0 outside the mask, without gradient."""

    advantages: Tensor
    returns: Tensor | None = None
    """Targets of the critic: advantages (by its own lambda) + values; None where there is no critic."""


@dataclass(frozen=True)
class Estimator:
    """A registered function and what it needs.

    Attributes:
        name: what users call it.
        function: computes advantages.
        critic: reads values; without this the trainer has no critic at all.
        groups: compares the responses to one prompt, so there must be two or more of them.
        greedy: compares with the score of the greedy response, which the experience maker then samples too.
        score_norms: weighs by squared norms of the score function, for which scoring sums up squared probabilities, too.
        per_token: advantages may differ from token to token within a response.
        whiten: advantages are meant to be whitened over the batch unless the user says otherwise.
    """

    name: str
    function: "Function"
    critic: bool = False
    groups: bool = False
    greedy: bool = False
    score_norms: bool = False
    per_token: bool = False
    whiten: bool = False

    def __call__(self, inputs: AdvantageInputs) -> AdvantageOutputs:
        return self.function(inputs)


Function = Callable[[AdvantageInputs], AdvantageOutputs]

_ESTIMATORS: dict[str, Estimator] = {}


def estimator(name: str, **needs: bool) -> Callable[[Function], Function]:
    """Register the decorated function under this name; `needs` are attributes of `Estimator`.

    Raises:
        ValueError: the name is taken.
    """

    def register(function: Function) -> Function:
        if name in _ESTIMATORS:
            raise ValueError(f"there is an advantage estimator named {name!r} already; choose another name")
        _ESTIMATORS[name] = Estimator(name, function, **needs)
        return function

    return register


def estimator_names() -> list[str]:
    """The registered names, sorted."""
    return sorted(_ESTIMATORS)


def get_estimator(name: str) -> Estimator:
    """The estimator of this name.

    Raises:
        ValueError: there is none; the message lists those that there are.
    """
    if name not in _ESTIMATORS:
        near = get_close_matches(name, _ESTIMATORS, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"unknown advantage estimator {name!r}; there are: {', '.join(estimator_names())}.{hint}")
    return _ESTIMATORS[name]


# Estimators that give each token an advantage of its own.


@estimator("gae", critic=True, per_token=True, whiten=True)
@torch.no_grad()
def gae(inputs: AdvantageInputs) -> AdvantageOutputs:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    A_t = sum over l of (gamma lam)^l delta_{t+l}, with delta_t = r_t + gamma V_{t+1} - V_t.

    Where turns are the steps (`turn_ends`), gamma and lambda are 1 within a turn: a discount that depends on the state (Sutton et
    al. 2011, "Horde", section 3.1).

    Masked tokens inside a response are no steps: the token before one sees the value and advantage of the token after
    it, and no discount is taken. Beyond the last token stands `bootstrap`.

    The critic's targets may have a lambda of their own (1 gives Monte-Carlo returns, free of the critic's bias), and the
    policy's may grow with the response's length: lam = 1 - 1 / (alpha length), which spreads the reward over the same
    share of any response (both VAPO, Yue et al. 2025, arXiv:2504.05118).

    Raises:
        ValueError: there are no values.
    """
    if inputs.values is None:
        raise ValueError("the advantage estimator 'gae' needs values; give it a critic's")
    mask = inputs.mask.bool()
    rewards = torch.where(mask, at_least_float32(inputs.rewards), 0.0)
    values = torch.where(mask, at_least_float32(inputs.values), 0.0).to(rewards.dtype)
    steps = mask if inputs.turn_ends is None else mask & inputs.turn_ends
    lam = inputs.lam if inputs.lam_alpha is None else adaptive_lambda(steps, inputs.lam_alpha, rewards.dtype)
    bootstrap = None if inputs.bootstrap is None else inputs.bootstrap.to(rewards.dtype)
    advantages = _backwards(rewards, values, mask, inputs.gamma, lam, bootstrap, inputs.turn_ends)
    if inputs.critic_lam is None:
        return AdvantageOutputs(advantages, returns=advantages + values)
    of_critic = _backwards(rewards, values, mask, inputs.gamma, inputs.critic_lam, bootstrap, inputs.turn_ends)
    return AdvantageOutputs(advantages, returns=of_critic + values)


def adaptive_lambda(mask: Tensor, alpha: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """[B] 1 - 1 / (alpha l) for responses of l steps ([B, R] `mask` is true there), 0 where that is negative (VAPO)."""
    lengths = mask.sum(dim=1).clamp(min=1).to(dtype)
    return (1.0 - 1.0 / (alpha * lengths)).clamp(min=0.0)


def _backwards(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float | Tensor,
    bootstrap: Tensor | None,
    turn_ends: Tensor | None = None,
) -> Tensor:
    """[B, R] advantages by the recursion A_t = delta_t + gamma lam A_{t+1}; `lam` is one number or [B].

    With `turn_ends` ([B, R]) gamma and lam are 1 but there.
    """
    one = rewards.new_ones(())

    def at(t: int, factor: float | Tensor) -> float | Tensor:
        return factor if turn_ends is None else torch.where(turn_ends[:, t], one * factor, one)

    advantages = torch.zeros_like(rewards)
    next_advantage = rewards.new_zeros(rewards.size(0))
    next_value = next_advantage if bootstrap is None else bootstrap
    for t in reversed(range(rewards.size(1))):
        here = mask[:, t]  # [B]; where it is false the token is no step, and the state after it takes its place
        discount, trace = at(t, gamma), at(t, gamma * lam)
        delta = rewards[:, t] + discount * next_value - values[:, t]
        next_advantage = torch.where(here, delta + trace * next_advantage, next_advantage)
        next_value = torch.where(here, values[:, t], next_value)
        advantages[:, t] = torch.where(here, next_advantage, 0.0)
    return advantages


@estimator("reinforce_pp", per_token=True, whiten=True)
@torch.no_grad()
def reinforce_pp(inputs: AdvantageInputs) -> AdvantageOutputs:
    """REINFORCE++ (Hu et al. 2025, arXiv:2501.03262): the reward to go, divergence included, without a critic.

    A_t = sum over l of gamma^l r_{t+l}; whitening over all tokens of all ranks takes the place of a baseline.
    """
    return AdvantageOutputs(plain_returns(replace(inputs, bootstrap=None)))


@torch.no_grad()
def plain_returns(inputs: AdvantageInputs) -> Tensor:
    """[B, R] the discounted rewards from each token on, 0 outside the mask; beyond a cut response stands `bootstrap`.

    sum over l of gamma^l r_{t+l}: what values foretell, and are judged by (`critic/explained_variance`). The critic's targets
    are the same only at lambda 1; below, they lean on the values themselves.
    """
    mask = inputs.mask.bool()
    rewards = torch.where(mask, at_least_float32(inputs.rewards), 0.0)
    bootstrap = None if inputs.bootstrap is None else inputs.bootstrap.to(rewards.dtype)
    zeros = torch.zeros_like(rewards)
    return _backwards(rewards, zeros, mask, inputs.gamma, 1.0, bootstrap, inputs.turn_ends)


# Estimators that give a whole response one advantage, by comparing its return with those of other responses to the same
# prompt. `_Groups` says which responses count.

STD_EPS = 1e-4
"""Added to the standard deviation that returns are divided by, as TRL's GRPO does."""


@estimator("grpo", groups=True)
@torch.no_grad()
def grpo(inputs: AdvantageInputs) -> AdvantageOutputs:
    """(return - mean) / (std + eps) within the group (DeepSeekMath, Shao et al. 2024, arXiv:2402.03300, section 4.1.2).

    std is that of a sample (divided by n - 1).
    """
    g = _grouped(inputs, "grpo")
    deviation = g.returns - g.mean(g.returns)
    variance = g.sum(deviation.square()) / (g.count - 1).clamp(min=1)
    return g.spread(deviation / (variance.sqrt() + STD_EPS))


@estimator("dr_grpo", groups=True)
@torch.no_grad()
def dr_grpo(inputs: AdvantageInputs) -> AdvantageOutputs:
    """return - mean of the group: no division, which favours prompts that are almost always or never solved.

    Liu et al. 2025, "Understanding R1-Zero-Like Training", arXiv:2503.20783, section 3.2. The paper's loss is summed over
    tokens and divided by a constant (`loss_reduction` `constant`).
    """
    g = _grouped(inputs, "dr_grpo")
    return g.spread(g.returns - g.mean(g.returns))


@estimator("rloo", groups=True)
@torch.no_grad()
def rloo(inputs: AdvantageInputs) -> AdvantageOutputs:
    """return - mean of the *other* responses of the group (Ahmadian et al. 2024, arXiv:2402.14740)."""
    g = _grouped(inputs, "rloo")
    others = (g.sum(g.returns) - g.returns) / (g.count - 1).clamp(min=1)
    return g.spread(g.returns - others)


@estimator("reinforce_pp_baseline", groups=True, whiten=True)
@torch.no_grad()
def reinforce_pp_baseline(inputs: AdvantageInputs) -> AdvantageOutputs:
    """REINFORCE++-baseline (Hu et al. 2025, arXiv:2501.03262): return - mean of the group, then whitened over the batch.

    The spread is taken over the whole batch, so that a group of almost equal returns is not blown up.
    """
    g = _grouped(inputs, "reinforce_pp_baseline")
    return g.spread(g.returns - g.mean(g.returns))


@estimator("opo", groups=True)
@torch.no_grad()
def opo(inputs: AdvantageInputs) -> AdvantageOutputs:
    """return - mean of the group weighted by length (OPO, Hao et al. 2025, arXiv:2505.23585).

    That baseline has the least variance when the squared gradient of a response grows with its length.
    """
    g = _grouped(inputs, "opo")
    lengths = torch.where(g.counted, inputs.mask.bool().sum(dim=1).double(), 0.0)
    return g.spread(g.returns - g.sum(lengths * g.returns) / g.sum(lengths).clamp(min=1))


@estimator("optimal_token_baseline", groups=True, per_token=True, score_norms=True)
@torch.no_grad()
def optimal_token_baseline(inputs: AdvantageInputs) -> AdvantageOutputs:
    """A_t = G_t - B_t, with B_t the mean of the group's G_t weighted by W_t (OTB, Li et al. 2026, arXiv:2602.07078).

    G_t is the reward to go and W_t the sum of the squared norms of the score function up to token t (`score_norms`), so that
    what is compared with most are responses whose tokens were the least sure so far, from which most of the gradient's
    variance comes. Of responses of one token no baseline has less variance; of longer ones the token's norm alone would be the
    best weight if tokens had parameters of their own, and the sum is the paper's. It counts the tokens that the policy chose:
    t is the place among them.

    Where a single response of the group is left at t there is nothing to compare it with, and B_t is 0, as in the authors' code.

    Raises:
        ValueError: there are no groups, or no score norms.
    """
    g = _grouped(inputs, "optimal_token_baseline")
    if inputs.score_norms is None:
        raise ValueError("the advantage estimator 'optimal_token_baseline' needs score_norms")
    mask = inputs.mask.bool()
    to_go = plain_returns(replace(inputs, rewards=inputs.rewards.double(), bootstrap=None))
    # [B, R] the tokens that count in front: foreign tokens inside a response would shift its places against others'.
    order = (~mask).long().argsort(dim=1, stable=True)
    there = (mask & g.counted[:, None]).gather(1, order)
    returns, norms = (torch.where(there, x.double().gather(1, order), 0.0) for x in (to_go, inputs.score_norms))
    energy = torch.where(there, norms.cumsum(dim=1), 0.0)
    left, weight = _sum(there.double(), g.index), _sum(energy, g.index)
    # Where no token had an alternative, all norms are 0, and so is the gradient.
    baseline = torch.where((left > 1) & (weight > 0), _sum(energy * returns, g.index) / weight.clamp(min=1e-300), 0.0)
    dense = torch.where(there & g.varies[:, None], returns - baseline, 0.0)
    advantages = torch.zeros_like(dense).scatter(1, order, dense)
    return AdvantageOutputs(advantages.to(at_least_float32(inputs.rewards).dtype))


def score_norms(logprobs: Tensor, squared_probs: Tensor) -> Tensor:
    """Squared norm of the gradient of a token's logprob in the logits: |onehot - p|^2 = 1 - 2 p(token) + sum of p^2.

    The logit-gradient proxy of arXiv:2602.07078: what a forward pass can tell of the norm of the whole score function.

    Args:
        logprobs: [...] of the tokens.
        squared_probs: [...] sums over the vocabulary of the squared probabilities.
    """
    exact = squared_probs.double()
    return (1.0 - 2.0 * logprobs.double().exp() + exact).clamp(min=0.0).to(squared_probs.dtype)


@estimator("remax", greedy=True)
@torch.no_grad()
def remax(inputs: AdvantageInputs) -> AdvantageOutputs:
    """return - score of the greedy response to the same prompt (ReMax, Li et al. 2024, arXiv:2310.10505).

    Raises:
        ValueError: there are no greedy scores.
    """
    if inputs.greedy_scores is None:
        raise ValueError("the advantage estimator 'remax' needs greedy_scores")
    returns, counted = _returns(inputs)
    return _spread(inputs, torch.where(counted, returns - inputs.greedy_scores.double(), 0.0))


def has_signal(scores: Tensor, scored: Tensor, groups: Tensor, tolerance: float = 1e-9) -> Tensor:
    """[B] true where the scores in a response's group differ, so that there is something to learn from comparing them.

    The scores themselves are compared, which is right for rewards of any range. A mean strictly between 0 and 1 would be
    right for rewards of 0 and 1 only, and a standard deviation above 0 is what rounding may leave of equal scores.

    Args:
        scores: [B].
        scored: [B] false where no reward function applied; such responses say nothing.
        groups: [B] integers.
        tolerance: relative difference that still counts as none.
    """
    index = torch.unique(groups, return_inverse=True)[1]
    exact = scores.double()
    low, high = (_extreme(exact, scored.bool(), index, which) for which in ("amin", "amax"))
    return high - low > tolerance * torch.maximum(low.abs(), high.abs()).clamp(max=torch.finfo(torch.float64).max)


def _returns(inputs: AdvantageInputs) -> tuple[Tensor, Tensor]:
    """[B] float64 sum of each response's rewards, and [B] whether it counts; 0 where it does not."""
    rewards = torch.where(inputs.mask.bool(), at_least_float32(inputs.rewards), 0.0)
    returns = rewards.double().sum(dim=1)
    counted = torch.ones_like(returns, dtype=torch.bool) if inputs.scored is None else inputs.scored.bool()
    return torch.where(counted, returns, 0.0), counted


def _spread(inputs: AdvantageInputs, per_response: Tensor) -> AdvantageOutputs:
    """One advantage for each response, on each of its tokens."""
    mask = inputs.mask.bool()
    dtype = at_least_float32(inputs.rewards).dtype
    return AdvantageOutputs(torch.where(mask, per_response.to(dtype)[:, None], 0.0))


@dataclass(frozen=True)
class _Groups:
    """The responses of a batch by prompt; every tensor is [B], statistics of a group stand at each of its members.

    What is compared is a response's return: the sum of its tokens' rewards, so the divergence from the reference too where
    that is part of the reward. Responses that no reward function applied to have no part in a group's statistics. A group
    whose returns are all equal gives exactly 0, and so does a group in which one response alone has a score.

    Statistics are taken in float64 and the equality of returns is found by comparing them: a rounding error divided by a
    standard deviation near 0 would be noise of size 1.

    Attributes:
        inputs: the batch.
        returns: sum of a response's rewards, float64; 0 where it does not count.
        counted: true where a reward function applied.
        index: number of the group, from 0.
        count: responses of the group that count.
        varies: true if the group's returns differ at all.
    """

    inputs: AdvantageInputs
    returns: Tensor
    counted: Tensor
    index: Tensor
    count: Tensor
    varies: Tensor

    def sum(self, values: Tensor) -> Tensor:
        return _sum(torch.where(self.counted, values, 0.0), self.index)

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / self.count.clamp(min=1)

    def spread(self, per_response: Tensor) -> AdvantageOutputs:
        return _spread(self.inputs, torch.where(self.counted & self.varies, per_response, 0.0))


def _grouped(inputs: AdvantageInputs, name: str) -> _Groups:
    """The batch by prompt.

    Raises:
        ValueError: there are no groups, or a group has one response: there is nothing to compare it with.
    """
    if inputs.groups is None:
        raise ValueError(f"the advantage estimator {name!r} needs groups")
    returns, counted = _returns(inputs)
    index = torch.unique(inputs.groups, return_inverse=True)[1]
    if (_sum(torch.ones_like(returns), index) < 2).any():
        raise ValueError(f"the advantage estimator {name!r} needs at least two responses to each prompt")
    low, high = (_extreme(returns, counted, index, which) for which in ("amin", "amax"))
    return _Groups(inputs, returns, counted, index, count=_sum(counted.double(), index), varies=high > low)


def _sum(values: Tensor, index: Tensor) -> Tensor:
    """[B, ...] sum over each entry's group. (`index` has fewer groups than entries, so B has room for all sums.)"""
    return torch.zeros_like(values).index_add(0, index, values)[index]


def _extreme(values: Tensor, counted: Tensor, index: Tensor, which: str) -> Tensor:
    """Least or greatest of the counted values of each group; infinite where none counts, so that nothing varies."""
    worst = torch.inf if which == "amin" else -torch.inf
    start = torch.full_like(values, worst)
    return start.scatter_reduce(0, index, torch.where(counted, values, worst), which)[index]
