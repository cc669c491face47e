"""From one score per response to one reward per token."""

import torch
from torch import Tensor

from rlvr.core.guards import at_least_float32


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
    counts = mask.long().cumsum(dim=1)
    return mask.bool() & (counts == mask.long().sum(dim=1, keepdim=True))
