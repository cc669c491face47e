"""Attention by batched products: PyTorch's attention, with its gradients; and who uses it when."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny_models import ragged, tiny_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.models import attention
from rlvr.models.actor import Actor
from rlvr.models.attention import Block, attention_in_blocks, hide, next_token_attention, whole_rows
from rlvr.models.batch import collate
from rlvr.rollout.kv_cache import PreallocatedCache


def tensors(heads: int, kv_heads: int, queries: int, keys: int) -> list[torch.Tensor]:
    """Queries, keys and values as models give them: transposed, in float64."""
    g = torch.Generator().manual_seed(0)
    draw = [(queries, heads), (keys, kv_heads), (keys, kv_heads)]
    rows = [torch.randn(3, n, h, 8, generator=g, dtype=torch.float64).transpose(1, 2) for n, h in draw]
    return [row.requires_grad_() for row in rows]


def with_gradients(function: Any, leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    """What it gives for the leaves, and their gradients of a sum in which each number counts differently."""
    out = function(*leaves)
    weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
    return [out, *torch.autograd.grad((out * weight).sum(), leaves)]


@pytest.mark.parametrize("pairs", [1, 60, 10**6])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
def test_attention_of_whole_rows_and_its_gradients_are_pytorchs(heads, kv_heads, pairs, monkeypatch) -> None:
    monkeypatch.setattr(attention, "BLOCK_PAIRS", pairs)

    def ours(*leaves: torch.Tensor) -> torch.Tensor:
        flat = [x.transpose(1, 2).flatten(0, 1) for x in leaves]
        return attention_in_blocks(*flat, whole_rows(3, 5), 0.3).unflatten(0, (3, 5)).transpose(1, 2)

    def theirs(*leaves: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(*leaves, is_causal=True, scale=0.3, enable_gqa=True)

    leaves = tensors(heads, kv_heads, 5, 5)
    results = with_gradients(ours, leaves), with_gradients(theirs, leaves)
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_the_last_tokens_of_rows_see_what_stands_before_them(kv_heads) -> None:
    """Two blocks of rows, with 2 queries of 5 keys and 3 of 4; the first row of each begins a token later than the other."""
    q, k, v = (x.transpose(1, 2).flatten(0, 1).detach() for x in tensors(4, kv_heads, 5, 6))
    first, second = torch.tensor([3, 2]), torch.tensor([1, 0])
    blocks = [Block(hide(first, 2, 5), 2), Block(hide(second, 3, 4), 2)]
    leaves = [q[:10].requires_grad_(), k.requires_grad_(), v.requires_grad_()]

    def row_by_row(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        out, query, key = [], 0, 0
        for starts, queries, keys in ((first, 2, 5), (second, 3, 4)):
            for start in starts.tolist():
                mine = [
                    x.transpose(0, 1) for x in (q[query : query + queries], k[key : key + keys], v[key : key + keys])
                ]
                seen = torch.tensor([[c <= start + n for c in range(keys)] for n in range(queries)])
                out.append(F.scaled_dot_product_attention(*mine, attn_mask=seen, scale=0.3, enable_gqa=True))
                query, key = query + queries, key + keys
        return torch.cat([row.transpose(0, 1) for row in out])

    ours = with_gradients(lambda *x: attention_in_blocks(*x, blocks, 0.3), leaves)
    for mine, other in zip(ours, with_gradients(row_by_row, leaves), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2)])
@pytest.mark.parametrize("mask", [None, "bool", "number"])
def test_attention_of_the_next_token_is_pytorchs(heads, kv_heads, mask) -> None:
    with torch.no_grad():
        q, k, v = (x.float() for x in tensors(heads, kv_heads, 1, 6))
        real = torch.ones(3, 1, 1, 6, dtype=torch.bool)
        real[1, :, :, :2] = False
        given = {None: None, "bool": real, "number": torch.zeros(3, 1, 1, 6).masked_fill(~real, -1e30)}[mask]
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=given, scale=0.3, enable_gqa=True)
        torch.testing.assert_close(next_token_attention(q, k, v, given, 0.3), expected, rtol=1e-5, atol=1e-6)


class Kernels(TorchDispatchMode):
    """Counts calls of PyTorch's own attention."""

    calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += "scaled_dot_product" in str(func)
        return func(*args, **(kwargs or {}))


def batch(padding_side="right"):
    prompts, responses = ragged(3)
    return collate(prompts, responses, pad_id=1, padding_side=padding_side)


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2-tied"])
def test_bfloat16_on_a_cpu_takes_it_and_is_near_float32(family) -> None:
    actor = Actor(tiny_model(family))
    exact = actor(batch())
    exact.logprobs.sum().backward()
    gradients = [p.grad.clone() for p in actor.parameters() if p.grad is not None]
    actor.zero_grad()
    with Kernels() as kernels:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rounded = actor(batch())
        rounded.logprobs.sum().backward()
    assert kernels.calls == 0
    torch.testing.assert_close(rounded.logprobs, exact.logprobs, rtol=0, atol=0.05)
    rounded_gradients = [p.grad for p in actor.parameters() if p.grad is not None]
    for mine, theirs in zip(rounded_gradients, gradients, strict=True):
        assert (mine - theirs).norm() < 0.05 * theirs.norm() + 1e-4


def test_padded_rows_in_float32_or_with_masks_or_long_keep_pytorchs_kernel(monkeypatch) -> None:
    actor = Actor(tiny_model())
    with Kernels() as kernels:
        actor(batch())
    assert kernels.calls == 0  # without padding, in blocks
    actor.keep_padding()
    with Kernels() as kernels:
        actor(batch())
    assert kernels.calls == 2  # layers
    with Kernels() as kernels, torch.autocast("cpu", dtype=torch.bfloat16):
        actor(batch("left"))
    assert kernels.calls == 2
    monkeypatch.setattr(attention, "MOST_PAIRS", 16)
    with Kernels() as kernels, torch.autocast("cpu", dtype=torch.bfloat16):
        actor(batch())
    assert kernels.calls == 2


@torch.no_grad()
def test_a_decoding_step_is_near_float32_and_its_cache_is_bfloat16() -> None:
    model, ids = Actor(tiny_model()).model, torch.arange(8).view(2, 4)
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 1]])
    logits = []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled), Kernels() as kernels:
            cache = PreallocatedCache()
            model(ids[:, :3], attention_mask=mask[:, :3], past_key_values=cache)
            prefill = kernels.calls
            logits.append(model(ids[:, 3:], attention_mask=mask, past_key_values=cache).logits.float())
            assert kernels.calls - prefill == (0 if enabled else 2)
    assert {x.dtype for pair in cache._buffers for x in pair} == {torch.bfloat16}
    torch.testing.assert_close(*logits, rtol=0, atol=0.02)


def test_it_is_put_in_place_once() -> None:
    attention.install()
    first = ALL_ATTENTION_FUNCTIONS["sdpa"]
    attention.install()
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is first
