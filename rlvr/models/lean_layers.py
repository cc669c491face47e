"""Layers that need less memory than their library's: norms and gates that keep less for the backward pass, on a CPU in float32
and in bfloat16 autocast, and adapters that add in place.

A Llama layer keeps 36 KB of each token for the backward pass (SmolLM2-135M in bfloat16; 45 in float32): among it the float32 steps of
its norms, what each projection's autocast rounds anew, and silu(gate). Here a norm keeps its input and one number a token and rounds
its result once, and a gate keeps its two inputs: 25 KB (34). What is computed forward is the same, bit for bit; gradients of
norms differ by rounding. Everywhere else (GPUs, models cast by a plugin, other architectures) norms and gates run as they are.
"""

from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import has_torch_function

SILU = ("SiLU", "SiLUActivation")
"""PyTorch's, and that of transformers from 5 on."""
FAMILIES = ("Llama", "Mistral", "Qwen2", "Qwen3", "SmolLM3")
"""Of transformers, whose norm is `weight * x / rms(x)`, read by projections alone, and whose MLP is `down(silu(gate) * up)`."""


def make_lean(model: nn.Module) -> None:
    """Let the decoder layers of a known architecture run their norms and gates so, and adapters wherever they are."""
    for module in model.modules():
        if hasattr(module, "lora_A") and isinstance(getattr(module, "base_layer", None), nn.Linear):
            module.forward = MethodType(_adapted_forward, module)
        family = _family(module, "DecoderLayer")
        if family is None:
            continue
        parts = dict(module.named_children())
        for name in ("input_layernorm", "post_attention_layernorm"):  # not the last norm: heads read it in float32
            if _family(parts.get(name), "RMSNorm") == family:
                parts[name].forward = MethodType(_norm_forward, parts[name])
        if _family(parts.get("mlp"), "MLP") == family and type(parts["mlp"].act_fn).__name__ in SILU:
            parts["mlp"].forward = MethodType(_mlp_forward, parts["mlp"])


def _family(module: nn.Module | None, kind: str) -> str | None:
    name = type(module).__name__
    return name.removesuffix(kind) if name in {family + kind for family in FAMILIES} else None


def _read_in(x: Tensor) -> torch.dtype | None:
    """The type in which projections read a layer's states on a CPU; None of another than float32 and bfloat16, and elsewhere."""
    if x.device.type != "cpu":
        return None
    autocast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if autocast else x.dtype
    return dtype if dtype == (torch.bfloat16 if autocast else torch.float32) else None


def _norm_forward(self: Any, hidden_states: Tensor) -> Tensor:
    dtype, weight = _read_in(hidden_states), self.weight
    # Plugins that cut weights have classes of their own for them, and must be asked.
    if (
        dtype is None
        or hidden_states.dtype != torch.float32
        or weight.dtype != torch.float32
        or has_torch_function((weight,))
    ):
        return type(self).forward(self, hidden_states)
    return _Norm.apply(hidden_states, weight, self.variance_epsilon, dtype)


def _mlp_forward(self: Any, x: Tensor) -> Tensor:
    if _read_in(x) is None:
        return type(self).forward(self, x)
    return self.down_proj(_Gate.apply(self.gate_proj(x), self.up_proj(x)))


def _adapted_forward(self: Any, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The forward pass of peft's `Linear`, [..., out] from [..., in], which adds to the base layer's result where that stands.

    peft makes three more tensors as large, for a moment each, and a CPU's allocator fills the gaps that they leave with smaller
    ones that stay: a pass of SmolLM2-135M that keeps 2.1 GiB took 5.0, and takes 3.4 this way. Whatever is not the plain case of one
    adapter goes peft's way.
    """
    name, *others = self.active_adapters
    plain = name in self.lora_A and not (others or self.merged or self.disable_adapters or args or kwargs)
    if not plain or name in self.lora_variant or not isinstance(self.lora_dropout[name], nn.Identity):
        return type(self).forward(self, x, *args, **kwargs)
    up = self.lora_B[name]
    if up.bias is not None or type(up.weight) is not nn.Parameter:  # such as a plugin's that is not whole
        return type(self).forward(self, x)
    rows = x.flatten(0, -2)  # autograd takes a sum into a view apart again
    out = self.base_layer(rows)
    low = self.lora_A[name](self._cast_input_dtype(rows, self.lora_A[name].weight.dtype))
    out.addmm_(low.to(out.dtype), up.weight.t().to(out.dtype), alpha=self.scaling[name])
    return out.unflatten(0, x.shape[:-1])


class _Norm(torch.autograd.Function):
    """[..., H] float32 to `dtype`, as projections would round it. Source: Zhang and Sennrich, arXiv:1910.07467, eq. 4."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        normed = x * x
        scale = torch.rsqrt(normed.mean(-1, keepdim=True) + epsilon)
        ctx.save_for_backward(x, weight, scale)
        return torch.mul(x, scale, out=normed).mul_(weight).to(dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, scale = ctx.saved_tensors
        normed, given = x * scale, gradient.float()
        d_weight = None
        if ctx.needs_input_grad[1]:
            d_weight = (given * normed).flatten(0, -2).sum(0)
        pulled = given * weight  # not in its place: a gradient in float32 is another's, too
        along = torch.linalg.vecdot(pulled, normed).div_(x.size(-1)).unsqueeze(-1)
        return pulled.sub_(normed.mul_(along)).mul_(scale), d_weight, None, None


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
