"""Log-probabilities and entropies of tokens, in float32 whatever the model runs in.

`chunked_logprobs` is the one that training uses: the logits of all tokens together, [N, V], are by far the largest
tensor of a language model's step (8 GiB for 16k tokens and 128k words, and the backward pass needs several such).
Here they exist for `chunk_tokens` tokens at a time, and the backward pass computes them again. On a CPU what is done to
them element by element goes over blocks of a chunk that fit into the cache.

Old, new and reference logprobs all come from here, with one temperature, so that their differences are the policy's.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.overrides import handle_torch_function, has_torch_function

from rlvr.core.masked import at_least_float32

CPU_BLOCK = 2**22
"""Logits of a block. A chunk's would take a quarter to a half longer: they leave the cache between one operation and the
next, and so large a tensor is new memory each time, of which the system has to clear every page."""


class TokenStatistics(NamedTuple):
    """Of the distributions that tokens are drawn from; float32 (float64 of float64 inputs)."""

    logprobs: Tensor
    """[...] log-probability of the token."""
    entropy: Tensor
    """[...] in nats."""
    squared_probs: Tensor | None = None
    """[...] sum over the vocabulary of squared probabilities, without gradient; None where it was not asked for."""


def selected_logprobs(
    logits: Tensor, targets: Tensor, temperature: float = 1.0, *, with_squared_probs: bool = False
) -> TokenStatistics:
    """Logprobs of `targets` under softmax(logits / temperature), and the entropies of these distributions, in nats.

    Args:
        logits: [..., V] from which each target is predicted: for a token at t those at t - 1. May hold -infinity.
        targets: [...] token ids.
        temperature: of sampling.
        with_squared_probs: give these as well.

    Returns:
        All [...].

    Raises:
        ValueError: a temperature that is not above 0.
    """
    _check_temperature(temperature)
    logp = _log_softmax(at_least_float32(logits), temperature)  # [..., V]
    p = logp.exp()
    # Words that are excluded have p = 0 and logp = -infinity, whose product is NaN.
    entropy = -(p * torch.where(p > 0, logp, 0.0)).sum(dim=-1)
    squared_probs = p.detach().square().sum(dim=-1) if with_squared_probs else None
    return TokenStatistics(logp.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropy, squared_probs)


def chunked_logprobs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    *,
    bias: Tensor | None = None,
    temperature: float = 1.0,
    softcap: float | None = None,
    scale: float = 1.0,
    chunk_tokens: int = 1024,
    with_entropy: bool = True,
    with_squared_probs: bool = False,
    float32: bool = False,
) -> TokenStatistics:
    """`selected_logprobs` of the logits of a linear head, without ever keeping these logits.

    The logits are `z = scale * (hidden @ weight.T + bias)`, then `softcap * tanh(z / softcap)` if there is a cap.
    Gradients reach `hidden`, `weight` and `bias` from both results and equal those of the plain computation;
    over chunks they are summed in float32.

    Args:
        hidden: [N, H] state from which each target is predicted. N may be 0.
        weight: [V, H] of the head.
        targets: [N] token ids.
        bias: [V] of the head.
        temperature: of sampling.
        softcap: bound of the logits (Gemma 2).
        scale: factor of the logits (Cohere's `logit_scale`; 1 / Granite's `logits_scaling`).
        chunk_tokens: tokens whose logits exist at the same time, up to half more or less, so that chunks are equal.
        with_entropy: False saves the work; the entropies are then 0.
        with_squared_probs: give these as well.
        float32: multiply in float32 whatever the states and the head are in, and under autocast too.

    Returns:
        All [N].

    Raises:
        ValueError: a temperature, softcap or chunk size that is not above 0.
    """
    _check_temperature(temperature)
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap must be above 0 (or None for none), got {softcap}")
    if chunk_tokens < 1:
        raise ValueError(f"chunk_tokens must be at least 1, got {chunk_tokens}")
    options = _Options(temperature, softcap, scale, chunk_tokens, with_entropy, with_squared_probs)
    return TokenStatistics(*_chunked(hidden, weight, targets, bias, options, float32))


def _chunked(
    hidden: Tensor, weight: Tensor, targets: Tensor, bias: Tensor | None, options: "_Options", float32: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    tensors = (hidden, weight, targets) if bias is None else (hidden, weight, targets, bias)
    if has_torch_function(tensors):  # a weight that a plugin fetches around each operation (Gemini): this is one
        return handle_torch_function(_chunked, tensors, hidden, weight, targets, bias, options, float32)
    # The backward pass runs outside autocast, so the casts happen here, where autograd sees them.
    cast = at_least_float32 if float32 else _autocast
    hidden, weight = cast(hidden), cast(weight)
    bias = None if bias is None else cast(bias)
    # Autocast would round the products of a float32 head.
    with torch.autocast(hidden.device.type, enabled=False) if float32 else nullcontext():
        return _ChunkedLogprobs.apply(hidden, weight, bias, targets, options)


class _Options(NamedTuple):
    temperature: float
    softcap: float | None
    scale: float
    chunk_tokens: int
    with_entropy: bool
    with_squared_probs: bool

    def chunks(self, tokens: int) -> Iterator[slice]:
        """Slices that cover N tokens."""
        yield from _slices(0, tokens, chunk_size(tokens, self.chunk_tokens))

    def blocks(self, part: slice, weight: Tensor) -> Iterator[slice]:
        """Slices that cover a chunk."""
        size = max(1, CPU_BLOCK // len(weight)) if weight.device.type == "cpu" else self.chunk_tokens
        yield from _slices(part.start, part.stop, size)


def chunk_size(tokens: int, asked: int) -> int:
    """How many of N tokens a chunk holds: the equal parts that come nearest to what is asked for. A small remainder would
    cost a pass over the head and its gradient as every chunk does."""
    return max(1, -(-tokens // max(1, round(tokens / asked))))


def _slices(start: int, stop: int, size: int) -> Iterator[slice]:
    for begin in range(start, stop, size):
        yield slice(begin, min(begin + size, stop))


class _ChunkedLogprobs(torch.autograd.Function):
    """Saves its inputs and the entropies; logits live within one turn of the loops below."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, options: _Options
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        logprobs = hidden.new_zeros(len(targets), dtype=dtype)
        entropy = torch.zeros_like(logprobs)
        squared_probs = torch.zeros_like(logprobs) if options.with_squared_probs else None
        for part in options.chunks(len(targets)):
            for block in options.blocks(part, weight):
                logp = _log_softmax(_logits(hidden[block], weight, bias, options), options.temperature)  # [n, V]
                logprobs[block] = logp.gather(1, targets[block, None]).squeeze(1)
                if options.with_entropy:
                    entropy[block] = -(logp.exp() * logp).sum(dim=1)
                if squared_probs is not None:
                    squared_probs[block] = logp.exp_().square_().sum(dim=1)
        ctx.save_for_backward(hidden, weight, bias, targets, entropy)
        ctx.options = options
        ctx.set_materialize_grads(False)  # a result that no loss uses has gradient None, and costs nothing
        without = [entropy] * (not options.with_entropy) + [squared_probs] * (squared_probs is not None)
        ctx.mark_non_differentiable(*without)
        return logprobs, entropy, squared_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_logprobs: Tensor | None, d_entropy: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, entropy = ctx.saved_tensors
        options: _Options = ctx.options
        if d_logprobs is None:
            d_logprobs = torch.zeros_like(entropy)
        d_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        d_weight = None
        d_bias = torch.zeros_like(bias, dtype=entropy.dtype) if ctx.needs_input_grad[2] else None
        # [n, V] of a whole chunk in the head's precision: element-wise work goes over blocks of it, but matrices are
        # multiplied once for each chunk.
        d_chunk = weight.new_empty(chunk_size(len(targets), options.chunk_tokens), len(weight))
        for part in options.chunks(len(targets)):
            d_z = d_chunk[: part.stop - part.start]
            for block in options.blocks(part, weight):
                z = _logits(hidden[block], weight, bias, options)
                of_entropy = None if d_entropy is None else (d_entropy[block], entropy[block])
                of_block = _logit_gradient(z, targets[block], d_logprobs[block], of_entropy, options)
                if d_bias is not None:
                    d_bias += of_block.sum(dim=0)
                d_z[block.start - part.start : block.stop - part.start] = of_block
            if d_hidden is not None:
                d_hidden[part] = d_z @ weight  # [n, V] x [V, H]
            if ctx.needs_input_grad[1]:
                of_chunk = d_z.T @ hidden[part]  # [V, n] x [n, H]
                # A chunk that is alone needs no more precision than it has.
                d_weight = of_chunk if d_weight is None else d_weight.to(entropy.dtype).add_(of_chunk)
        if ctx.needs_input_grad[1]:
            d_weight = torch.zeros_like(weight) if d_weight is None else d_weight.to(weight.dtype)
        return (
            d_hidden,
            d_weight,
            None if d_bias is None else d_bias.to(bias.dtype),
            None,
            None,
        )


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, options: _Options) -> Tensor:
    """[n, V] before temperature, in float32."""
    z = at_least_float32(F.linear(hidden, weight, bias))
    if options.scale != 1.0:
        z = z * options.scale
    return z if options.softcap is None else options.softcap * torch.tanh(z / options.softcap)


def _logit_gradient(
    z: Tensor, targets: Tensor, d_logprobs: Tensor, of_entropy: tuple[Tensor, Tensor] | None, options: _Options
) -> Tensor:
    """[n, V] gradient of what `F.linear` returned, from [n] gradients of logprobs and `(gradient, value)` of entropies.

    With p = softmax(z): d logprob / d z = onehot - p, and d entropy / d z = -p (log p + entropy).
    """
    logp = _log_softmax(z, options.temperature)
    pull = -d_logprobs[:, None]
    if of_entropy is not None:
        d_entropy, entropy = of_entropy
        pull = pull - d_entropy[:, None] * (logp + entropy[:, None])
    gradient = logp.exp_().mul_(pull)
    gradient.scatter_add_(1, targets[:, None], d_logprobs[:, None])
    gradient.mul_(options.scale / options.temperature)
    if options.softcap is not None:  # d tanh(x) = 1 - tanh(x)²; `z` is the capped logit
        gradient.mul_(1.0 - (z / options.softcap).square())
    return gradient


def _log_softmax(z: Tensor, temperature: float) -> Tensor:
    """[..., V] without a needless copy of the logits at temperature 1."""
    return torch.log_softmax(z if temperature == 1.0 else z / temperature, dim=-1)


def _autocast(x: Tensor) -> Tensor:
    """`x` as autocast, if it is on, would give it to a matrix product."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind) and x.dtype != torch.float64:
        return x.to(torch.get_autocast_dtype(kind))
    return x


def _check_temperature(temperature: float) -> None:
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}")
