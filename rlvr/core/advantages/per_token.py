"""Estimators that give each token an advantage of its own."""

import torch
from torch import Tensor

from rlvr.core.advantages.registry import AdvantageInputs, AdvantageOutputs, estimator
from rlvr.core.guards import at_least_float32


@estimator("gae", critic=True, per_token=True, whiten=True)
@torch.no_grad()
def gae(inputs: AdvantageInputs) -> AdvantageOutputs:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    A_t = sum over l of (gamma lam)^l delta_{t+l}, with delta_t = r_t + gamma V_{t+1} - V_t.

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
    lam = inputs.lam if inputs.lam_alpha is None else adaptive_lambda(mask, inputs.lam_alpha, rewards.dtype)
    bootstrap = None if inputs.bootstrap is None else inputs.bootstrap.to(rewards.dtype)
    advantages = _backwards(rewards, values, mask, inputs.gamma, lam, bootstrap)
    if inputs.critic_lam is None:
        return AdvantageOutputs(advantages, returns=advantages + values)
    of_critic = _backwards(rewards, values, mask, inputs.gamma, inputs.critic_lam, bootstrap)
    return AdvantageOutputs(advantages, returns=of_critic + values)


def adaptive_lambda(mask: Tensor, alpha: float, dtype: torch.dtype = torch.float32) -> Tensor:
    """[B] 1 - 1 / (alpha l) for responses of l tokens that count, 0 where that is negative (VAPO)."""
    lengths = mask.sum(dim=1).clamp(min=1).to(dtype)
    return (1.0 - 1.0 / (alpha * lengths)).clamp(min=0.0)


def _backwards(
    rewards: Tensor, values: Tensor, mask: Tensor, gamma: float, lam: float | Tensor, bootstrap: Tensor | None
) -> Tensor:
    """[B, R] advantages by the recursion A_t = delta_t + gamma lam A_{t+1}; `lam` is one number or [B]."""
    advantages = torch.zeros_like(rewards)
    next_advantage = rewards.new_zeros(rewards.size(0))
    next_value = next_advantage if bootstrap is None else bootstrap
    for t in reversed(range(rewards.size(1))):
        here = mask[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        next_advantage = torch.where(here, delta + gamma * lam * next_advantage, next_advantage)
        next_value = torch.where(here, values[:, t], next_value)
        advantages[:, t] = torch.where(here, next_advantage, 0.0)
    return advantages


@estimator("reinforce_pp", per_token=True, whiten=True)
@torch.no_grad()
def reinforce_pp(inputs: AdvantageInputs) -> AdvantageOutputs:
    """REINFORCE++ (Hu et al. 2025, arXiv:2501.03262): the reward to go, divergence included, without a critic.

    A_t = sum over l of gamma^l r_{t+l}; whitening over all tokens of all ranks takes the place of a baseline.
    """
    mask = inputs.mask.bool()
    rewards = torch.where(mask, at_least_float32(inputs.rewards), 0.0)
    return AdvantageOutputs(_backwards(rewards, torch.zeros_like(rewards), mask, inputs.gamma, 1.0, None))
