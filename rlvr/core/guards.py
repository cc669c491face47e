"""Numerical guards that the losses and divergences share.

Padding may hold anything, NaN and infinity too. Multiplying by a mask does not help (0 * NaN is NaN), and choosing the
good entries at the end does not either: the backward pass would still compute 0 * infinity. So whatever is not finite
is replaced *before* the computation, and marked as NaN *after* it: a mask removes the mark, and a token that does
count keeps it, so a broken model is never hidden.
"""

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0
"""Largest exponent that is used: e^20 is 5e8, and sums and squares of it still fit into float32."""


def at_least_float32(x: Tensor) -> Tensor:
    """`x` in float32, or as it is if in float64."""
    return x if x.dtype == torch.float64 else x.float()


def all_finite(*tensors: Tensor) -> Tensor:
    """True where every one of the tensors is finite."""
    finite = torch.isfinite(tensors[0])
    for tensor in tensors[1:]:
        finite = finite & torch.isfinite(tensor)
    return finite


def zero_unless(finite: Tensor, x: Tensor) -> Tensor:
    """`x` where `finite`, else 0; no gradient passes there."""
    return torch.where(finite, x, 0.0)


def nan_unless(finite: Tensor, x: Tensor) -> Tensor:
    """`x` where `finite`, else NaN; no gradient passes there."""
    return torch.where(finite, x, torch.nan)


def bounded_exp(x: Tensor) -> Tensor:
    """exp(min(x, MAX_LOG_RATIO)), with the gradient of an exponential everywhere. `x` is finite.

    A clamp would have no gradient beyond its bound, exactly where the policy has moved furthest and has to come back.
    Here the value is bounded, the gradient is bounded, and neither is zero.
    """
    value = x.detach().clamp(max=MAX_LOG_RATIO).exp()
    return value * (1.0 + (x - x.detach()))
