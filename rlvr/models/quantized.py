"""The linear layers of a frozen decoder in 4 bits (NF4, scales in 8 bits), over which LoRA adapters learn.

Source: Dettmers et al., "QLoRA: Efficient Finetuning of Quantized LLMs", arXiv:2305.14314. Rounding and its undoing are
bitsandbytes'. The layer around them is ours, because bitsandbytes' own multiplies a single row by other kernels than many, and lays
its weights out anew for inference on a CPU: what is sampled and what is learned would be two policies, and the divergence
of a run's first responses not 0. A model is quantised after it was loaded, so that every source of one (files, GGUF, the built-in
model, a decoder under a new score head) is quantised in one way, and on every device to the same bits.
"""

import logging
from types import ModuleType
from typing import Any

import torch
from packaging.version import Version
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from rlvr.errors import UserError

NF4 = "nf4"
BLOCK, BLOCK_OF_SCALES = 64, 256
LEAST_BITSANDBYTES = "0.46"


def import_bitsandbytes() -> ModuleType:
    """The functions of the library bitsandbytes.

    Raises:
        UserError: it is not installed, or too old.
    """
    # It warns of a kernel for single rows that it would fetch from a hub, which nothing here calls.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    install = f"pip install 'bitsandbytes>={LEAST_BITSANDBYTES}'"
    try:
        import bitsandbytes
        from bitsandbytes import functional
    except ImportError:
        raise UserError(f"weights in 4 bits need the package bitsandbytes: {install}") from None
    if Version(bitsandbytes.__version__) < Version(LEAST_BITSANDBYTES):
        raise UserError(
            f"weights in 4 bits need bitsandbytes {LEAST_BITSANDBYTES} or newer, and here is {bitsandbytes.__version__}: {install}"
        )
    return functional


class Linear4bit(nn.Linear):
    """A frozen linear layer whose weights lie in memory in 4 bits, and are whole for as long as a product takes.

    They are buffers and not parameters: nothing trains, casts, exchanges or shards them, and copies of a model share them.

    Args:
        layer: the layer to round; its bias, if it has one, is taken over.
    """

    packed: Tensor
    scales: Tensor
    scales_of_scales: Tensor
    steps: Tensor
    offset: Tensor

    def __init__(self, layer: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        weight = layer.weight.detach().float()
        packed, state = import_bitsandbytes().quantize_4bit(
            weight, blocksize=BLOCK, compress_statistics=True, quant_type=NF4
        )
        self.register_buffer("packed", packed)
        self.register_buffer("scales", state.absmax)
        self.register_buffer("scales_of_scales", state.state2.absmax)
        self.register_buffer("steps", state.state2.code)
        self.register_buffer("offset", state.offset)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """[out, in] the weights in float32."""
        return self.whole(torch.float32)

    @torch.no_grad()
    def whole(self, dtype: torch.dtype) -> Tensor:
        """[out, in] the weights in this type."""
        from bitsandbytes import functional

        scales = functional.QuantState(
            self.scales_of_scales, code=self.steps, blocksize=BLOCK_OF_SCALES, dtype=torch.float32
        )
        state = functional.QuantState(
            self.scales,
            shape=torch.Size((self.out_features, self.in_features)),
            blocksize=BLOCK,
            quant_type=NF4,
            dtype=dtype,
            offset=self.offset,
            state2=scales,
        )
        return functional.dequantize_4bit(self.packed, state)

    @property
    def count(self) -> int:
        """Weights in 4 bits."""
        return self.in_features * self.out_features

    def plain(self) -> nn.Linear:
        """The layer that this one is: an ordinary one with these weights in float32."""
        layer = nn.Linear(self.in_features, self.out_features, self.bias is not None, device="meta")
        layer.weight = nn.Parameter(self.weight, requires_grad=False)
        layer.bias = self.bias
        return layer

    def forward(self, x: Tensor) -> Tensor:
        """[..., out] in the type of x, or of autocast."""
        kind = x.device.type
        if torch.is_autocast_enabled(kind):
            x = x.to(torch.get_autocast_dtype(kind))
        return _Product.apply(x, self)


class _Product(torch.autograd.Function):
    """x W' + b, for whose backward pass W is made whole again, rather than kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Linear4bit) -> Tensor:
        ctx.layer = layer
        return F.linear(x, layer.whole(x.dtype), None if layer.bias is None else layer.bias.to(x.dtype))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,) = gradients
        return gradient @ ctx.layer.whole(gradient.dtype), None


def quantize(model: PreTrainedModel) -> None:
    """Round the linear layers of the model's decoder to 4 bits. Embeddings, norms and heads stay as they are.

    Raises:
        UserError: the decoder has no such layers, or bitsandbytes is missing.
    """
    decoder = model.base_model
    layers = [(name, module) for name, module in decoder.named_modules() if type(module) is nn.Linear]
    if not layers:
        raise UserError(
            f"--load_in_4bit: {type(model).__name__} has no linear layers of torch's in its decoder, which are what is held in 4 bits; "
            "leave it out"
        )
    # bitsandbytes keeps the table of steps that it makes first, and the memory estimate builds models without storage.
    with torch.device("cpu"):
        import_bitsandbytes().quantize_blockwise(torch.zeros(1))
    for name, layer in layers:
        decoder.set_submodule(name, Linear4bit(layer))


def layers_in_4bit(model: nn.Module) -> list[Linear4bit]:
    """The layers that are held in 4 bits."""
    return [module for module in model.modules() if isinstance(module, Linear4bit)]


def dequantize(model: PreTrainedModel) -> None:
    """Turn layers in 4 bits into ordinary ones, which hold what the 4 bits hold."""
    for name, module in list(model.named_modules()):
        if isinstance(module, Linear4bit):
            model.set_submodule(name, module.plain())
