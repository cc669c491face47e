"""Sums, means and whitening over the entries that a mask selects, in float32 or better.

What the mask leaves out may be anything, NaN included. Nothing selected gives 0, not NaN.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from rlvr.core.guards import at_least_float32


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of the selected entries, over `dim` or over all."""
    kept = torch.where(mask.bool(), at_least_float32(values), 0.0)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the selected entries, over `dim` or over all; 0 where there are none, with a path for gradients."""
    return masked_sum(values, mask, dim) / _count(mask, dim).clamp(min=1)


def masked_var(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Variance of the selected entries (divided by their number, not one less); 0 where there are none."""
    kept = torch.where(mask.bool(), at_least_float32(values), 0.0)
    mean = masked_mean(kept, mask, dim)
    deviation = kept - (mean if dim is None else mean.unsqueeze(dim))
    return masked_mean(deviation.square(), mask, dim)


def whiten(
    values: Tensor,
    mask: Tensor,
    *,
    shift_mean: bool = True,
    all_reduce: Callable[[Tensor], Tensor] = lambda x: x,
    eps: float = 1e-8,
) -> Tensor:
    """Bring the selected entries of all ranks together to variance 1, and to mean 0 if `shift_mean`.

    In float64 and two passes (the mean first, then the deviations from it), so a large common offset costs nothing.
    Every rank calls `all_reduce` twice, also one with nothing selected.

    Args:
        values: any shape.
        mask: the same shape; what it leaves out is 0 in the result.
        shift_mean: False keeps the mean and scales the deviations only.
        all_reduce: sums a small vector over ranks and returns the sum. By default there is one rank.
        eps: added to the variance.
    """
    mask = mask.bool()
    exact = torch.where(mask, values.double(), 0.0)
    count, total = all_reduce(torch.stack([mask.sum().double(), exact.sum()])).unbind()
    mean = total / count.clamp(min=1)
    deviation = torch.where(mask, exact - mean, 0.0)
    squares = all_reduce(deviation.square().sum().reshape(1))[0]
    white = deviation * torch.rsqrt(squares / count.clamp(min=1) + eps)
    if not shift_mean:
        white = torch.where(mask, white + mean, 0.0)
    return white.to(at_least_float32(values).dtype)


def _count(mask: Tensor, dim: int | None) -> Tensor:
    return mask.bool().sum() if dim is None else mask.bool().sum(dim)
