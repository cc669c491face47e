"""Attention on a CPU by batched matrix products, where PyTorch's own kernel is slow.

It is in bfloat16: PyTorch's kernel for CPUs multiplies in float32 tiles of its own; oneDNN multiplies bfloat16 several times as
fast. On model M of benchmarks/ (8 heads of 64, one thread of an EPYC with AVX512-BF16): 16 rows of 112 tokens forward and backward
13 ms instead of 42, of 304 tokens 75 instead of 131; a decoding step of 64 rows over 112 tokens 2.1 ms instead of 5.0.
In float32, on other devices, with masks over whole sequences and above `MOST_PAIRS` PyTorch's kernel stays.

It is, in any precision, where only some tokens of a row ask, as the others are those of a row that began alike: PyTorch's kernel
asks for all. `attention_in_blocks` does both: in a padded batch all tokens ask. 31 rows of 323 tokens that share 150, in float32 on two
cores of another EPYC: 63 ms instead of 303. Scores in bfloat16 are rounded before the softmax, which computes in float32, as in
transformers' eager attention.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.core.masked import at_least_float32

MOST_PAIRS = 1024**2
"""Of a query and a key in a row: beyond, the half of the products that causality hides costs more than is gained."""
BLOCK_PAIRS = 2**16
"""In a block of several rows: times the heads, few enough scores for the cache, and many for what each operation costs."""
ROUNDING = 16
"""Queries and keys of a block are a multiple of this many: oneDNN compiles a kernel for each shape."""
_NAME = "sdpa"


def install() -> None:
    """Take the place of transformers' `sdpa` attention, which still does everything that is not done here. Idempotent."""
    # Under the name that models have anyway: transformers chooses masks by it, and padding-free passes ask for it.
    if not isinstance(ALL_ATTENTION_FUNCTIONS[_NAME], _Attention):
        ALL_ATTENTION_FUNCTIONS[_NAME] = _Attention(ALL_ATTENTION_FUNCTIONS[_NAME])


class _Attention:
    """An attention function as transformers' interface has it, with PyTorch's (`other`) for what it does not do itself."""

    def __init__(self, other: Any) -> None:
        self.other = other

    def __call__(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        """[B, N, heads, D] from queries [B, heads, N, D] and keys and values [B, kv_heads, T, D]."""
        dtype = dtype_of_products(query, kwargs)
        scale = scale_of(query, kwargs)
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        rows, _, tokens, _ = query.shape
        if dtype != torch.bfloat16:
            return self.other(module, query, key, value, attention_mask, **kwargs)
        q, k, v = (x.to(dtype) for x in (query, key, value))  # what autocast does, too
        if tokens == 1 and not torch.is_grad_enabled():
            return next_token_attention(q, k, v, attention_mask, scale).transpose(1, 2), None
        if causal and attention_mask is None and 1 < tokens == key.size(2) and tokens**2 <= MOST_PAIRS:
            q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # [B * T, heads, D]
            out = attention_in_blocks(q, k, v, whole_rows(rows, tokens), scale)
            return out.unflatten(0, (rows, tokens)), None
        return self.other(module, query, key, value, attention_mask, **kwargs)


def dtype_of_products(query: Tensor, kwargs: Mapping[str, Any]) -> torch.dtype | None:
    """The precision of products on a CPU. None elsewhere, and where an attention function's further arguments ask for more than
    is done here."""
    given = {name for name, argument in kwargs.items() if argument is not None}
    if kwargs.get("dropout") or given & {"position_bias", "softcap", "cache", "s_aux"}:
        return None
    if query.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    autocast = torch.is_autocast_enabled("cpu") and query.dtype == torch.float32
    return torch.get_autocast_dtype("cpu") if autocast else query.dtype


def scale_of(query: Tensor, kwargs: Mapping[str, Any]) -> float:
    """The factor of the scores, from queries [..., D] and an attention function's further arguments."""
    return kwargs.get("scaling") or query.size(-1) ** -0.5


def next_token_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Attention of one token of each row to all that came before it; no gradients.

    Args:
        query: [B, heads, 1, D].
        key, value: [B, kv_heads, T, D].
        mask: [B, 1, 1, T], true on tokens, or a number that is added to the scores.
        scale: factor of the scores.

    Returns:
        [B, heads, 1, D].
    """
    grouped = query.reshape(query.size(0), key.size(1), -1, query.size(-1))  # heads that share keys side by side
    # Keys stand first, so that no copy of them is transposed: twice as fast as the other way round. Of scores that is little.
    scores = torch.matmul(key, grouped.transpose(-1, -2)).transpose(-1, -2).contiguous()  # [B, kv_heads, G, T]
    scores = at_least_float32(scores).mul_(scale)
    if mask is not None:
        scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return torch.matmul(scores.softmax(-1).to(value.dtype), value).view(query.shape)


class Block(NamedTuple):
    """Rows that attend at once: n of them with Q queries and K keys each.

    Attributes:
        hidden: [n or 1, 1, Q, K] what is added to the scores: 0 where a query sees a key, and else -infinity.
        rows: n.
    """

    hidden: Tensor
    rows: int

    @property
    def queries(self) -> int:
        return self.hidden.size(2)

    @property
    def keys(self) -> int:
        return self.hidden.size(3)


def whole_rows(rows: int, tokens: int) -> tuple[Block, ...]:
    """The blocks of so many rows in which each token asks all up to itself."""
    hidden = hide(torch.zeros(1, dtype=torch.long), tokens, tokens)
    most = max(1, BLOCK_PAIRS // tokens**2)
    return tuple(Block(hidden, min(most, rows - start)) for start in range(0, rows, most))


def hide(starts: Tensor, queries: int, keys: int) -> Tensor:
    """[n, 1, Q, K] `Block.hidden` of rows whose first query stands at `starts` [n]: each sees the keys up to its own place."""
    seen = starts[:, None, None] + torch.arange(queries)[:, None] >= torch.arange(keys)
    return torch.zeros(seen.shape, dtype=torch.bfloat16).masked_fill_(~seen, -torch.inf)[:, None]


def attention_in_blocks(query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float) -> Tensor:
    """[S, heads, D] attention of rows that stand back to back, block after block, with gradients.

    Args:
        query: [S, heads, D]: of each block n * Q.
        key, value: [L, kv_heads, D]: of each block n * K.
        blocks: covers both.
        scale: factor of the scores.
    """
    return _AttentionInBlocks.apply(query, key, value, blocks, scale)


class _AttentionInBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float) -> Tensor:
        ctx.save_for_backward(query, key, value)  # not the weights, which are computed again
        ctx.blocks, ctx.scale = blocks, scale
        return attend(query, key, value, blocks, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value = ctx.saved_tensors
        return *attend_backward(query, key, value, ctx.blocks, ctx.scale, d_out), None, None


# Without autograd. Scores exist for one part of a block at a time. Products are of [m, G * Q, D] queries and [m, K, D] keys and
# values: m = n * kv_heads, G heads share keys and values.


def attend(query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float) -> Tensor:
    """`attention_in_blocks` without gradients."""
    out = torch.empty_like(query)
    for part in _parts(blocks, query.size(1), key.size(1)):
        _attend(part, query, key, value, scale, out)
    return out


def attend_backward(
    query: Tensor, key: Tensor, value: Tensor, blocks: Sequence[Block], scale: float, d_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `attend`'s query, key and value from that of its result. The scores are computed again."""
    d_query, d_key, d_value = torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)
    for part in _parts(blocks, query.size(1), key.size(1)):
        _attend_backward(part, query, key, value, scale, d_out, d_query, d_key, d_value)
    return d_query, d_key, d_value


class _Part(NamedTuple):
    """A block's rows under as many heads at once as leave the scores in the cache: under all of them where rows are short.

    Attributes:
        asked, seen: where the queries and the keys stand: tokens and heads.
        kv_heads: of the keys.
    """

    block: Block
    asked: tuple[slice, slice]
    seen: tuple[slice, slice]
    kv_heads: int

    def queries(self, x: Tensor) -> Tensor:
        return _by_head(x[self.asked], self.block.rows, self.kv_heads)

    def keys(self, x: Tensor) -> Tensor:
        return _by_head(x[self.seen], self.block.rows, self.kv_heads)


def _parts(blocks: Sequence[Block], heads: int, kv_heads: int) -> Iterator[_Part]:
    group, asked, seen = heads // kv_heads, 0, 0
    for block in blocks:
        queries = slice(asked, asked := asked + block.rows * block.queries)
        keys = slice(seen, seen := seen + block.rows * block.keys)
        most = max(1, kv_heads * BLOCK_PAIRS // (block.rows * block.queries * block.keys))
        for first in range(0, kv_heads, most):
            last = min(first + most, kv_heads)
            yield _Part(block, (queries, slice(first * group, last * group)), (keys, slice(first, last)), last - first)


# Functions of their own, so that one part's scores are gone before the next part's are made.


def _attend(part: _Part, query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    weights = _weights(part.queries(query), part.keys(key), part.block.hidden, scale)
    _put(out[part.asked], torch.bmm(weights, part.keys(value)), part.block.rows)


def _attend_backward(
    part: _Part,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    d_out: Tensor,
    d_query: Tensor,
    d_key: Tensor,
    d_value: Tensor,
) -> None:
    q, g, k, v = part.queries(query), part.queries(d_out), part.keys(key), part.keys(value)
    rows, weights = part.block.rows, _weights(q, k, part.block.hidden, scale)
    _put(d_value[part.seen], torch.bmm(weights.transpose(1, 2), g), rows)
    d_weights = torch.bmm(g, v.transpose(1, 2))
    d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
    _put(d_query[part.asked], torch.bmm(d_scores, k).mul_(scale), rows)
    _put(d_key[part.seen], torch.bmm(d_scores.transpose(1, 2), q).mul_(scale), rows)


def _by_head(x: Tensor, rows: int, kv_heads: int) -> Tensor:
    """[n * kv_heads, G * N, D] from [n * N, kv_heads * G, D]"""
    return (
        x.view(rows, -1, kv_heads, x.size(1) // kv_heads, x.size(2)).permute(0, 2, 3, 1, 4).flatten(2, 3).flatten(0, 1)
    )


def _put(place: Tensor, x: Tensor, rows: int) -> None:
    """Write [n * kv_heads, G * N, D] to [n * N, kv_heads * G, D], the way back of `_by_head`."""
    tokens, heads, size = place.shape
    place.view(rows, tokens // rows, heads, size).copy_(x.view(rows, heads, -1, size).transpose(1, 2))


def _weights(q: Tensor, k: Tensor, hidden: Tensor, scale: float) -> Tensor:
    """[n * kv_heads, G * Q, K] softmax of the scores."""
    rows, queries, keys = len(hidden), hidden.size(2), hidden.size(3)
    scores = q.new_empty(rows, len(q) // rows, q.size(1) // queries, queries, keys).copy_(hidden[:, None])
    return scores.view(len(q), q.size(1), keys).baddbmm_(q, k.transpose(1, 2), alpha=scale).softmax(-1)
