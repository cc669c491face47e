"""Drawing tokens from logits: temperature, top-k, top-p, in float32, with the logprob of what was drawn."""

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 256
"""Tokens of a block, in vocabularies of more than `SMALL`."""
SMALL = 2048

Draw = Callable[[Tensor], tuple[Tensor, Tensor | None]]


def make_draw(temperature: float, top_k: int, top_p: float, generator: torch.Generator) -> Draw:
    """A function from logits [B, V] to tokens [B] and their logprobs [B] (None where greedy).

    Logprobs are those of the whole distribution at this temperature, whatever top-k and top-p leave of it: the same
    quantity that the trainer computes as old logprobs.
    """
    if temperature == 0:
        return lambda logits: (logits.argmax(-1), None)

    def draw(logits: Tensor) -> tuple[Tensor, Tensor]:
        scaled = logits.float() if temperature == 1 else logits.float() / temperature
        top = scaled.amax(-1, keepdim=True)
        weights = (scaled - top).exp_()
        if top_k or top_p < 1:
            total = weights.sum(-1, dtype=torch.float64, keepdim=True)
            tokens, _ = draw_weighted(truncated(weights, top_k, top_p), generator)
        else:
            tokens, total = draw_weighted(weights, generator)
        return tokens[:, 0], (scaled.gather(1, tokens) - top - total.log())[:, 0].float()

    return draw


def draw_weighted(weights: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw an index of each row of weights [B, V] >= 0 with probability proportional to it.

    By inversion of the cumulative sum in float64; over blocks first, where V is large, then inside the block. Against
    that, `torch.multinomial` draws an exponential for each token of the vocabulary, and took half as long as the model
    of 40M parameters.

    Returns:
        [B, 1] indices, none of weight 0, and the [B, 1] sums of the rows in float64 (NaN if a weight is).
    """
    size = weights.size(1)
    if size <= SMALL:
        return _invert(weights, generator)
    whole = size // BLOCK
    blocks = weights[:, : whole * BLOCK].unflatten(1, (whole, BLOCK)).sum(-1)
    if size % BLOCK:
        blocks = torch.cat([blocks, weights[:, whole * BLOCK :].sum(-1, keepdim=True)], 1)
    block, total = _invert(blocks, generator)
    inside = block * BLOCK + torch.arange(BLOCK, device=weights.device)
    tokens = weights.gather(1, inside.clamp(max=size - 1)).masked_fill_(inside >= size, 0.0)
    index, _ = _invert(tokens, generator)
    return block * BLOCK + index, total


def _invert(weights: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """[B, 1] where the cumulative sum of [B, N] weights passes a random share of the total, and that total."""
    ends = weights.cumsum(-1, dtype=torch.float64)
    total = ends[:, -1:]
    share = torch.rand(total.shape, dtype=torch.float64, device=weights.device, generator=generator)
    # The share is at most 1 - 2^-53, and total * (1 - 2^-53) rounds to less than the total: what is found has weight.
    # Not so if a weight is NaN, whence the clamp: `Decoder` reports that.
    return torch.searchsorted(ends, share * total, right=True).clamp_(max=weights.size(1) - 1), total


def truncated(weights: Tensor, top_k: int, top_p: float) -> Tensor:
    """Weights [B, V] with 0 for all but the `top_k` largest, and of these for all but the smallest set that holds the
    share `top_p` of their sum (as transformers does it: top-k first, at least one token stays)."""
    if top_k and top_k < weights.size(1):
        least = weights.topk(top_k, -1).values[:, -1:]
        weights = weights.masked_fill(weights < least, 0.0)
    if top_p < 1:
        ordered, order = weights.sort(dim=-1, descending=True)
        before = ordered.cumsum(-1, dtype=torch.float64) - ordered
        drop = before >= top_p * ordered.sum(-1, keepdim=True, dtype=torch.float64)
        drop[:, 0] = False
        weights = weights.masked_fill(drop.scatter(1, order, drop), 0.0)
    return weights
