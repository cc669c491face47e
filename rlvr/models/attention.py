"""Attention in bfloat16 on a CPU by batched matrix products, where PyTorch's own kernel is slow.

PyTorch's kernel for CPUs multiplies in float32 tiles of its own; oneDNN multiplies bfloat16 several times as fast. On
model M of benchmarks/ (8 heads of 64, one thread of an EPYC with AVX512-BF16): 16 rows of 112 tokens forward and backward
13 ms instead of 42, of 304 tokens 75 instead of 131; a decoding step of 64 rows over 112 tokens 2.1 ms instead of 5.0.
In float32, on other devices, with masks over whole sequences and above `MOST_TOKENS` PyTorch's kernel stays.

Scores are rounded to bfloat16 before the softmax, which is in float32, as in transformers' eager attention.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.core.masked import at_least_float32

MOST_TOKENS = 1024
"""Of a sequence: beyond, the half of the products that causality hides costs more than is gained."""
BLOCK = 2**19
"""Scores that exist at once: few enough for the cache."""
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
        given = {name for name, argument in kwargs.items() if argument is not None}
        dtype = _dtype_of_products(query)
        if dtype is None or kwargs.get("dropout") or given & {"position_bias", "softcap", "cache", "s_aux"}:
            return self.other(module, query, key, value, attention_mask, **kwargs)
        scale = kwargs.get("scaling") or query.size(-1) ** -0.5
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        q, k, v = (x.to(dtype) for x in (query, key, value))  # what autocast does, too
        if query.size(2) == 1 and not torch.is_grad_enabled():
            out = next_token_attention(q, k, v, attention_mask, scale)
        elif causal and attention_mask is None and 1 < query.size(2) == key.size(2) <= MOST_TOKENS:
            out = causal_attention(q, k, v, scale)
        else:
            return self.other(module, query, key, value, attention_mask, **kwargs)
        return out.transpose(1, 2), None


def _dtype_of_products(query: Tensor) -> torch.dtype | None:
    """The precision of products, where they are better left to oneDNN than to PyTorch's kernel: bfloat16 on a CPU."""
    if query.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return None
    autocast = torch.is_autocast_enabled("cpu") and query.dtype == torch.float32
    dtype = torch.get_autocast_dtype("cpu") if autocast else query.dtype
    return dtype if dtype == torch.bfloat16 else None


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
    # Keys stand first, so that nothing as long as they are is transposed: twice as fast as the other way round.
    scores = at_least_float32(torch.matmul(key, grouped.transpose(-1, -2))).mul_(scale)  # [B, kv_heads, T, G]
    if mask is not None:
        mask = mask.transpose(-1, -2)
        scores = scores.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    weights = scores.softmax(-2).to(value.dtype)
    return torch.matmul(weights.transpose(-1, -2), value).view(query.shape)


def causal_attention(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """[B, heads, T, D] attention of each token to itself and those before it, with gradients.

    Scores are computed again in the backward pass and exist for a few heads at a time.

    Args:
        query: [B, heads, T, D].
        key, value: [B, kv_heads, T, D].
        scale: factor of the scores.
    """
    return _CausalAttention.apply(query, key, value, scale)


class _CausalAttention(torch.autograd.Function):
    """Works on [n, G * T, D] queries and [n, T, D] keys and values: n = B * kv_heads, G heads share keys and values."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        ctx.shapes, ctx.scale = (query.shape, key.shape), scale
        kv_heads, tokens, size = key.shape[1:]
        q = query.reshape(-1, query.size(1) // kv_heads * tokens, size)
        k, v = key.reshape(-1, tokens, size), value.reshape(-1, tokens, size)
        out = torch.empty_like(q)
        for part in _blocks(q, k):
            torch.bmm(_weights(q[part], k[part], scale).to(v.dtype), v[part], out=out[part])
        ctx.save_for_backward(q, k, v)  # not the [n, G * T, T] weights, which are computed again
        return out.view(query.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v = ctx.saved_tensors
        g = d_out.reshape(q.shape)
        d_q, d_k, d_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        for part in _blocks(q, k):
            weights = _weights(q[part], k[part], ctx.scale)
            torch.bmm(weights.to(v.dtype).transpose(1, 2), g[part], out=d_v[part])
            d_weights = torch.bmm(g[part], v[part].transpose(1, 2)).to(weights.dtype)
            # d softmax: weights * (d_weights - the mean of d_weights under them)
            mean = torch.linalg.vecdot(d_weights, weights).unsqueeze(-1)
            d_scores = d_weights.sub_(mean).mul_(weights).mul_(ctx.scale).to(q.dtype)
            torch.bmm(d_scores, k[part], out=d_q[part])
            torch.bmm(d_scores.transpose(1, 2), q[part], out=d_k[part])
        of_query, of_key = ctx.shapes
        return d_q.view(of_query), d_k.view(of_key), d_v.view(of_key), None


def _blocks(q: Tensor, k: Tensor) -> list[slice]:
    size = max(1, BLOCK // (q.size(1) * k.size(1)))
    return [slice(start, start + size) for start in range(0, len(q), size)]


def _weights(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """[n, G * T, T] softmax of the causal scores, in float32 or better."""
    tokens = k.size(1)
    scores = torch.bmm(q, k.transpose(1, 2))
    hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu_(1)
    scores.view(len(q), -1, tokens, tokens).masked_fill_(hidden, -torch.inf)
    return at_least_float32(scores).mul_(scale).softmax(-1)
