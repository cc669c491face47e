"""Norms and gates of decoder layers that keep less for the backward pass, in bfloat16 autocast on a CPU.

A Llama layer keeps 30 KB of each token for the backward pass (SmolLM2-135M): among it the float32 steps of its norms, what each
projection's autocast rounds anew, and silu(gate). Here a norm keeps its input and one number a token and rounds its result
once, and a gate keeps its two inputs: 22 KB. What is computed forward is the same, bit for bit; gradients of norms differ by
rounding.

Everywhere else (float32, GPUs, models cast by a plugin, other architectures) modules run as they are.
"""

from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3")
"""Of transformers, whose norm is `weight * x / rms(x)`, read by projections alone, and whose MLP is `down(silu(gate) * up)`."""


def make_lean(model: nn.Module) -> None:
    """Let the decoder layers of a known architecture run their norms and gates so, under bfloat16 autocast on a CPU."""
    for module in model.modules():
        family = _family(module, "DecoderLayer")
        if family is None:
            continue
        parts = dict(module.named_children())
        for name in ("input_layernorm", "post_attention_layernorm"):  # not the last norm: heads read it in float32
            if _family(parts.get(name), "RMSNorm") == family:
                parts[name].forward = MethodType(_norm_forward, parts[name])
        if _family(parts.get("mlp"), "MLP") == family and isinstance(parts["mlp"].act_fn, nn.SiLU):
            parts["mlp"].forward = MethodType(_mlp_forward, parts["mlp"])


def _family(module: nn.Module | None, kind: str) -> str | None:
    name = type(module).__name__
    return name.removesuffix(kind) if name in {family + kind for family in FAMILIES} else None


def _applies(x: Tensor) -> bool:
    return (
        x.device.type == "cpu"
        and torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
    )


def _norm_forward(self: Any, hidden_states: Tensor) -> Tensor:
    if not _applies(hidden_states) or hidden_states.dtype != torch.float32 or self.weight.dtype != torch.float32:
        return type(self).forward(self, hidden_states)
    return _Norm.apply(hidden_states, self.weight, self.variance_epsilon)


def _mlp_forward(self: Any, x: Tensor) -> Tensor:
    if not _applies(x):
        return type(self).forward(self, x)
    return self.down_proj(_Gate.apply(self.gate_proj(x), self.up_proj(x)))


class _Norm(torch.autograd.Function):
    """[..., H] float32 to bfloat16, as projections would round it. Source: Zhang and Sennrich, arXiv:1910.07467, eq. 4."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, weight, scale)
        return (x * scale).mul_(weight).to(torch.bfloat16)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        normed, given = x * scale, gradient.float()
        d_weight = None
        if ctx.needs_input_grad[1]:
            d_weight = (given * normed).flatten(0, -2).sum(0)
        pulled = given.mul_(weight)
        along = torch.linalg.vecdot(pulled, normed).div_(x.size(-1)).unsqueeze(-1)
        return pulled.sub_(normed.mul_(along)).mul_(scale), d_weight, None


class _Gate(torch.autograd.Function):
    """silu(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        d_up = F.silu(gate).mul_(gradient)
        return torch.ops.aten.silu_backward(gradient * up, gate), d_up
