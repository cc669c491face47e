"""Advantage estimators: registered plain functions from `AdvantageInputs` to `AdvantageOutputs`.

    @estimator("mine")
    def mine(inputs: AdvantageInputs) -> AdvantageOutputs: ...

Whitening is not done here: it needs all samples of all ranks (`reductions.whiten`), and returns are never whitened.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rlvr.core.guards import at_least_float32


@dataclass(frozen=True)
class AdvantageInputs:
    """What an estimator may use. Masked positions may hold anything."""

    rewards: Tensor
    """[B, R] reward of each token."""
    values: Tensor | None
    """[B, R] V(s_t), before token t; None without a critic."""
    mask: Tensor
    """[B, R] true on tokens that the policy chose; false on padding and on foreign tokens inside a response."""
    gamma: float
    """Discount per token."""
    lam: float
    """Lambda of GAE."""
    bootstrap: Tensor | None = None
    """[B] value of the state after the last token, for responses that were cut; 0 (or None) where they ended."""


@dataclass(frozen=True)
class AdvantageOutputs:
    """What learning needs; both [B, R], 0 outside the mask, without gradient."""

    advantages: Tensor
    returns: Tensor
    """Targets of the critic: advantages + values."""


Estimator = Callable[[AdvantageInputs], AdvantageOutputs]

_ESTIMATORS: dict[str, Estimator] = {}


def estimator(name: str) -> Callable[[Estimator], Estimator]:
    """Register the decorated function under this name.

    Raises:
        ValueError: the name is taken.
    """

    def register(function: Estimator) -> Estimator:
        if name in _ESTIMATORS:
            raise ValueError(f"there is an advantage estimator named {name!r} already; choose another name")
        _ESTIMATORS[name] = function
        return function

    return register


def get_estimator(name: str) -> Estimator:
    """The estimator of this name.

    Raises:
        ValueError: there is none; the message lists those that there are.
    """
    if name not in _ESTIMATORS:
        raise ValueError(f"unknown advantage estimator {name!r}; there are: {', '.join(sorted(_ESTIMATORS))}")
    return _ESTIMATORS[name]


@estimator("gae")
@torch.no_grad()
def gae(inputs: AdvantageInputs) -> AdvantageOutputs:
    """Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 16).

    A_t = sum over l of (gamma lam)^l delta_{t+l}, with delta_t = r_t + gamma V_{t+1} - V_t.

    Masked tokens inside a response are no steps: the token before one sees the value and advantage of the token after
    it, and no discount is taken. Beyond the last token stands `bootstrap`.

    Raises:
        ValueError: there are no values.
    """
    if inputs.values is None:
        raise ValueError("the advantage estimator 'gae' needs values; give it a critic's")
    mask = inputs.mask.bool()
    rewards = torch.where(mask, at_least_float32(inputs.rewards), 0.0)
    values = torch.where(mask, at_least_float32(inputs.values), 0.0).to(rewards.dtype)
    advantages = torch.zeros_like(rewards)
    next_advantage = rewards.new_zeros(rewards.size(0))
    next_value = next_advantage if inputs.bootstrap is None else inputs.bootstrap.to(rewards.dtype)
    for t in reversed(range(rewards.size(1))):
        here = mask[:, t]
        delta = rewards[:, t] + inputs.gamma * next_value - values[:, t]
        next_advantage = torch.where(here, delta + inputs.gamma * inputs.lam * next_advantage, next_advantage)
        next_value = torch.where(here, values[:, t], next_value)
        advantages[:, t] = torch.where(here, next_advantage, 0.0)
    return AdvantageOutputs(advantages=advantages, returns=advantages + values)
