"""Masks made from lengths, sums and means over the entries that they select, and guards for the entries that they don't.

Padding may hold anything, NaN and infinity too. Multiplying by a mask does not help (0 * NaN is NaN), and choosing the
good entries at the end does not either: the backward pass would still compute 0 * infinity. So whatever is not finite
is replaced *before* the computation, and marked as NaN *after* it: a mask removes the mark, and a token that does
count keeps it, so a broken model is never hidden.

Masks are made from lengths, never by comparing token ids with padding: EOS == PAD changes nothing. The one comparison with
token ids is the search for a response's end, its *first* stop token, which belongs to the response; what stands after it
counts nowhere.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

# Masks from lengths.


def mask_from_lengths(lengths: Tensor, size: int | None = None) -> Tensor:
    """[B, size] bool, true in the first `lengths[i]` columns of row i (padding on the right).

    Args:
        lengths: [B] integers.
        size: number of columns; by default the largest length.

    Raises:
        ValueError: a length is negative or exceeds `size`.
    """
    longest = int(lengths.max()) if lengths.numel() else 0
    columns = longest if size is None else size
    if longest > columns or (lengths.numel() and int(lengths.min()) < 0):
        raise ValueError(f"lengths must be from 0 to size={columns}, got {lengths.tolist()}")
    return torch.arange(columns, device=lengths.device) < lengths[:, None]


def response_lengths(responses: Tensor, stop_ids: Sequence[int]) -> Tensor:
    """[B] tokens up to and with the first stop token; R where a row has none.

    Args:
        responses: [B, R] generated token ids; what follows the first stop token does not matter.
        stop_ids: token ids that end a response.
    """
    stops = torch.isin(responses, torch.tensor(list(stop_ids), dtype=responses.dtype, device=responses.device))
    # Columns before which no stop token stands, the first stop token's own included: stops so far, less this one.
    return (stops.long().cumsum(dim=1) - stops.long() == 0).sum(dim=1)


def truncate_response(stop_token_id: int, pad_token_id: int, responses: Tensor) -> Tensor:
    """[B, R] the responses with everything after the first stop token replaced by padding (same call as TRL's).

    Args:
        stop_token_id: token that ends a response; it stays.
        pad_token_id: what replaces the rest; it may equal the stop token.
        responses: [B, R] generated token ids.
    """
    keep = mask_from_lengths(response_lengths(responses, [stop_token_id]), responses.size(1))
    return responses.masked_fill(~keep, pad_token_id)


# Sums, means and whitening over the entries that a mask selects, in float32 or better. Nothing selected gives 0, not NaN.


def masked_sum(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Sum of the selected entries, over `dim` or over all."""
    kept = torch.where(mask.bool(), at_least_float32(values), 0.0)
    return kept.sum() if dim is None else kept.sum(dim)


def masked_mean(values: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Mean of the selected entries, over `dim` or over all; 0 where there are none, with a path for gradients."""
    count = mask.bool().sum() if dim is None else mask.bool().sum(dim)
    return masked_sum(values, mask, dim) / count.clamp(min=1)


def whiten(
    values: Tensor,
    mask: Tensor,
    *,
    shift_mean: bool = True,
    all_reduce: Callable[[Tensor], Tensor] = lambda x: x,
    eps: float = 1e-8,
) -> Tensor:
    """Bring the selected entries of all ranks together to variance 1, and to mean 0 if `shift_mean`.

    In float64 and two passes (the mean first, then the deviations from it), so a large common offset costs no precision.
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


# Guards: what the losses and divergences compute with where an entry may not be finite.

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


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """Name of the first tensor that holds a number that is not finite; None if all are finite."""
    for name, tensor in tensors:
        if tensor.is_floating_point() and not tensor.is_meta:
            # A sum is finite only if all of its terms are, and reads them once without a copy.
            total = tensor.detach().sum(dtype=torch.promote_types(tensor.dtype, torch.float32))
            if not torch.isfinite(total):
                return name
    return None


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
