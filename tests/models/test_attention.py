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
from rlvr.models.attention import causal_attention, next_token_attention
from rlvr.models.batch import collate
from rlvr.rollout.kv_cache import PreallocatedCache


def tensors(heads: int, kv_heads: int, queries: int, keys: int) -> list[torch.Tensor]:
    """Queries, keys and values as models give them: transposed, in float64."""
    g = torch.Generator().manual_seed(0)
    draw = [(queries, heads), (keys, kv_heads), (keys, kv_heads)]
    rows = [torch.randn(3, n, h, 8, generator=g, dtype=torch.float64).transpose(1, 2) for n, h in draw]
    return [row.requires_grad_() for row in rows]


@pytest.mark.parametrize("block", [1, 60, 10**6])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (4, 1)])
def test_causal_attention_and_its_gradients_are_pytorchs(heads, kv_heads, block, monkeypatch) -> None:
    monkeypatch.setattr(attention, "BLOCK", block)
    leaves = tensors(heads, kv_heads, 5, 5)
    weight = torch.linspace(-1, 1, 3 * heads * 5 * 8, dtype=torch.float64).view(3, heads, 5, 8)
    results = []
    for out in (
        causal_attention(*leaves, 0.3),
        F.scaled_dot_product_attention(*leaves, is_causal=True, scale=0.3, enable_gqa=True),
    ):
        results.append([out, *torch.autograd.grad((out * weight).sum(), leaves)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


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


def test_float32_and_masks_and_long_sequences_keep_pytorchs_kernel(monkeypatch) -> None:
    actor = Actor(tiny_model())
    with Kernels() as kernels:
        actor(batch())
    assert kernels.calls == 2  # layers
    with Kernels() as kernels, torch.autocast("cpu", dtype=torch.bfloat16):
        actor(batch("left"))
    assert kernels.calls == 2
    monkeypatch.setattr(attention, "MOST_TOKENS", 4)
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
