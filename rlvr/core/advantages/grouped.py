"""Estimators that give a whole response one advantage, by comparing it with other responses to the same prompt.

What is compared is a response's return: the sum of its tokens' rewards, so the divergence from the reference too where
that is part of the reward. Responses that no reward function applied to have no part in a group's statistics. A group
whose returns are all equal gives exactly 0, and so does a group in which one response alone has a score.

Statistics are taken in float64 and the equality of returns is found by comparing them: a rounding error divided by a
standard deviation near 0 would be noise of size 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rlvr.core.advantages.registry import AdvantageInputs, AdvantageOutputs, estimator
from rlvr.core.guards import at_least_float32

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
    """The responses of a batch by prompt; every tensor is [B], statistics of a group stand at each of its members."""

    inputs: AdvantageInputs
    returns: Tensor
    counted: Tensor
    index: Tensor
    count: Tensor
    """Responses of the group that count."""
    varies: Tensor
    """Whether the group's returns differ at all."""

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


def has_signal(scores: Tensor, scored: Tensor, groups: Tensor, tolerance: float = 1e-9) -> Tensor:
    """[B] whether the scores in each response's group differ, so that comparing them teaches something.

    Differences are judged by the scores themselves, so rewards of any kind will do: neither a mean between 0 and 1 nor a
    standard deviation above 0 (which rounding leaves to equal scores) is asked for.

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


def _sum(values: Tensor, index: Tensor) -> Tensor:
    return torch.zeros_like(values).index_add(0, index, values)[index]


def _extreme(values: Tensor, counted: Tensor, index: Tensor, which: str) -> Tensor:
    """Least or greatest of the counted values of each group; infinite where none counts, so that nothing varies."""
    worst = torch.inf if which == "amin" else -torch.inf
    start = torch.full_like(values, worst)
    return start.scatter_reduce(0, index, torch.where(counted, values, worst), which)[index]
