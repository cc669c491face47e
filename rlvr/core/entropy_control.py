"""Which tokens decide how the policy's entropy moves, so that the policy loss can treat them otherwise.

`rlvr.experience.maker` asks once for each collect step, for all ranks together, so that neither micro-batches nor the number of
processes change the choice (pitfall A20). It goes by logprobs and entropies of the policy that sampled: what the papers compute is
the same in the first optimizer step and, a clip range later, almost the same in the last.

- `top_entropy`: the tokens of highest entropy, the forks of a chain of thought; the loss learns from these alone (Wang et al.
  2025, "Beyond the 80/20 Rule", arXiv:2506.01939, eq. 5).
- `clip_cov`: tokens by lot among those whose covariance lies in a range; the loss leaves them out (Cui et al. 2025, "The Entropy
  Mechanism of Reinforcement Learning", arXiv:2505.22617, sec. 4.2, Clip-Cov).
- `kl_cov`: the tokens of highest covariance; the loss holds them back by a penalty (the same, KL-Cov).
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from rlvr.core.masked import at_least_float32

EntropyControl = Literal["top_entropy", "clip_cov", "kl_cov"]
SHARES: dict[EntropyControl, float] = {"top_entropy": 0.2, "clip_cov": 2e-4, "kl_cov": 2e-3}
"""Of all tokens, in the papers (KL-Cov: of the 7B model)."""


def choose_tokens(
    kind: EntropyControl,
    share: float,
    mask: Tensor,
    *,
    logprobs: Tensor,
    advantages: Tensor,
    entropy: Tensor | None,
    lots: Tensor,
    covariances_from: float,
    covariances_to: float,
    all_reduce: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """[B, R] true on the tokens chosen: `share` of those that count, rounded down, but one at least. Collective.

    Args:
        kind: see above.
        share: of the tokens of all ranks.
        mask: [B, R] true on the tokens that count.
        logprobs, advantages, entropy: [B, R] of this rank's tokens; `entropy` is read by `top_entropy` only.
        lots: [B, R] random numbers, by which `clip_cov` draws.
        covariances_from, covariances_to: the range of `clip_cov`.
        all_reduce: sums a small tensor over ranks. By default there is one rank.
    """
    mask = mask.bool()
    count = max(1, int(share * float(all_reduce(mask.sum().double()))))
    if kind == "top_entropy":
        assert entropy is not None, "made without entropies"
        return largest(entropy, mask, count, all_reduce)
    covariance = covariances(logprobs, advantages, mask, all_reduce)
    if kind == "kl_cov":
        return largest(covariance, mask, count, all_reduce)
    return largest(lots, mask & (covariance > covariances_from) & (covariance < covariances_to), count, all_reduce)


def covariances(logprobs: Tensor, advantages: Tensor, mask: Tensor, all_reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """[B, R] (log p - mean) (A - mean) of each token, means over the tokens of all ranks (arXiv:2505.22617, sec. 4). Collective.

    Their mean is the covariance that drives entropy down: large where what is likely already is to become likelier.
    """
    columns = torch.stack([logprobs, advantages]).double()
    columns = torch.where(mask, columns, 0.0)  # [2, B, R]
    totals = all_reduce(torch.cat([columns.sum((1, 2)), mask.sum().double()[None]]))
    means = totals[:2] / totals[2].clamp(min=1)
    return torch.where(mask, (columns - means[:, None, None]).prod(0), 0.0)


def largest(values: Tensor, eligible: Tensor, count: int, all_reduce: Callable[[Tensor], Tensor]) -> Tensor:
    """True at the `count` largest (in float32) of the eligible entries of all ranks; ties with the last of these are in. Collective.

    The limit is found by halving the range of float32 numbers, in steps of one sum over the ranks each: no rank needs the others'
    entries.
    """
    bits = at_least_float32(values).float().contiguous().view(torch.int32).long()
    order = torch.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)  # whole numbers in the order of the floats
    low, high = -(2**31), 2**31 - 1
    while low < high:
        middle = (low + high + 1) // 2
        enough = float(all_reduce((eligible & (order >= middle)).sum().double())) >= count
        low, high = (middle, high) if enough else (low, middle - 1)
    return eligible & (order >= low)
