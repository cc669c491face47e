"""What an estimator gets and gives, and the table of estimators by name."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

from torch import Tensor


@dataclass(frozen=True)
class AdvantageInputs:
    """What an estimator may use. Masked positions may hold anything. The last six are None where nobody needs them."""

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


@dataclass(frozen=True)
class AdvantageOutputs:
    """What learning needs; both [B, R], 0 outside the mask, without gradient."""

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
        per_token: advantages may differ from token to token within a response.
        whiten: advantages are meant to be whitened over the batch unless the user says otherwise.
    """

    name: str
    function: Callable[[AdvantageInputs], AdvantageOutputs]
    critic: bool = False
    groups: bool = False
    greedy: bool = False
    per_token: bool = False
    whiten: bool = False

    def __call__(self, inputs: AdvantageInputs) -> AdvantageOutputs:
        return self.function(inputs)


_ESTIMATORS: dict[str, Estimator] = {}

Function = Callable[[AdvantageInputs], AdvantageOutputs]


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
