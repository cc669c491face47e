"""Norms and gates that keep less: the same forward bit for bit, gradients as exact, and less memory."""

import copy
from typing import Any

import pytest
import torch
from tiny_models import VOCAB
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, SmolLM3Config

from rlvr.models.lean_layers import make_lean

SIZES = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": VOCAB, "pad_token_id": 0, "initializer_range": 0.2,
}  # fmt: skip
CONFIGS = (LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config, SmolLM3Config)


def pair(kind: Any = LlamaConfig) -> tuple[nn.Module, nn.Module]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain = AutoModelForCausalLM.from_config(kind(**SIZES)).eval()
        for name, parameter in plain.named_parameters():
            if "norm" in name:
                nn.init.uniform_(parameter, 0.5, 1.5)
    lean = copy.deepcopy(plain)
    make_lean(lean)
    return plain, lean


def run(model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, int]:
    """The states and the bytes kept for the backward pass, which is made."""
    ids = torch.arange(96).view(4, 24) % VOCAB
    weights, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, dtype == torch.bfloat16),
    ):
        states = model.model(input_ids=ids, use_cache=False).last_hidden_state  # type: ignore[union-attr, operator]
    size = sum(storage.nbytes() for storage in kept.values())
    states.float().square().mean().backward()
    return states.detach(), size


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("kind", CONFIGS)
def test_the_same_forward_and_gradients_and_less_is_kept(kind: Any, dtype: torch.dtype) -> None:
    plain, lean = pair(kind)
    (states, kept), (lean_states, lean_kept) = run(plain, dtype), run(lean, dtype)
    assert torch.equal(states, lean_states)
    tokens, layers = 96, 2
    # The float32 results of two norms, and silu(gate).
    saved = layers * tokens * (2 * 4 * SIZES["hidden_size"] + dtype.itemsize * SIZES["intermediate_size"])
    if dtype == torch.float32:
        assert lean_kept == kept - saved
    else:  # what projections round themselves comes on top, again for each that reads a norm
        assert lean_kept < kept - saved - layers * tokens * 2 * dtype.itemsize * SIZES["hidden_size"]
    for (name, p), q in zip(plain.named_parameters(), lean.parameters(), strict=True):
        if p.grad is not None:
            bound = 2e-2 if dtype == torch.bfloat16 else 1e-5
            assert q.grad is not None and (p.grad - q.grad).norm() <= bound * p.grad.norm(), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_gradients_of_a_norm_are_those_of_autograd_in_double_precision(dtype: torch.dtype) -> None:
    from rlvr.models.lean_layers import _Norm

    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(*size, generator=generator).double().requires_grad_() for size in ((5, 7, 32), (32,)))
    given = torch.randn(5, 7, 32, generator=generator).to(dtype)
    before = given.clone()
    (weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))).backward(given.double())
    short, short_weight = x.detach().float().requires_grad_(), weight.detach().float().requires_grad_()
    _Norm.apply(short, short_weight, 1e-6, dtype).backward(given)
    assert torch.equal(given, before)  # which is another's, too
    assert torch.allclose(short.grad.double(), x.grad, rtol=1e-4, atol=1e-5)  # type: ignore[union-attr, arg-type]
    assert torch.allclose(short_weight.grad.double(), weight.grad, rtol=1e-4, atol=1e-4)  # type: ignore[union-attr, arg-type]


def test_in_float64_nothing_changes() -> None:
    plain, lean = (model.double() for model in pair())
    (states, kept), (lean_states, lean_kept) = run(plain, torch.float64), run(lean, torch.float64)
    assert torch.equal(states, lean_states) and kept == lean_kept
    assert all(
        torch.equal(p.grad, q.grad) for p, q in zip(plain.model.parameters(), lean.model.parameters(), strict=True)
    )  # type: ignore[union-attr, arg-type]


def test_the_last_norm_stays_in_float32_and_copies_run_their_own_weights() -> None:
    _, lean = pair()
    assert run(lean)[0].dtype == torch.float32
    twin = copy.deepcopy(lean)
    with torch.no_grad():
        twin.model.layers[0].input_layernorm.weight.mul_(2)  # type: ignore[union-attr, index]
    assert not torch.equal(run(twin)[0], run(lean)[0])
