"""Masks and positions from lengths, never from comparing token ids with padding: EOS == PAD changes nothing.

The one comparison with token ids is the search for a response's end, its *first* stop token. It belongs to the
response and is counted once; what stands after it counts nowhere.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor


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


def position_ids(lengths: Tensor, size: int, padding_side: Literal["left", "right"]) -> Tensor:
    """[B, size] 0, 1, 2, ... over the tokens of each row, 0 on padding.

    Models with absolute positions (GPT-2, OPT) give other results without them when padded on the left.

    Args:
        lengths: [B] tokens in each row.
        size: number of columns.
        padding_side: where the padding is.

    Raises:
        ValueError: a length is negative or exceeds `size`, or the side is neither left nor right.
    """
    from_right = mask_from_lengths(lengths, size)
    columns = torch.arange(size, device=lengths.device)
    if padding_side == "right":
        return columns * from_right
    if padding_side == "left":
        return (columns - (size - lengths[:, None])).clamp(min=0)
    raise ValueError(f"padding_side must be 'left' or 'right', got {padding_side!r}")


def response_lengths(responses: Tensor, stop_ids: Sequence[int]) -> Tensor:
    """[B] tokens up to and with the first stop token; R where a row has none.

    Args:
        responses: [B, R] generated token ids; what follows the first stop token does not matter.
        stop_ids: token ids that end a response.
    """
    stops = torch.isin(responses, torch.tensor(list(stop_ids), dtype=responses.dtype, device=responses.device))
    # Columns before which no stop token stands, the stop token's own included.
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
