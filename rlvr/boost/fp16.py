"""fp16 under `ddp`: ColossalAI's autocast and scaling of gradients, with their norm, which ColossalAI computes and drops."""

from collections.abc import Callable
from typing import Any

from colossalai.booster.mixed_precision import FP16TorchMixedPrecision
from colossalai.booster.mixed_precision.fp16_torch import TorchAMPModule, TorchAMPOptimizer
from colossalai.interface import OptimizerWrapper
from torch import Tensor, nn
from torch.optim import Optimizer


class ScaledOptimizer(TorchAMPOptimizer):
    """An optimizer whose gradients were scaled up against underflow."""

    def clip_grad_by_norm(self, *args: Any, **kwargs: Any) -> Tensor:
        """Scale the gradients back, then down to the norm. Returns what it was."""
        self.unscale_grad()
        return OptimizerWrapper.clip_grad_by_norm(self, *args, **kwargs)


class Fp16(FP16TorchMixedPrecision):
    """Forward passes under fp16 autocast, and a `ScaledOptimizer`."""

    def configure(
        self, model: nn.Module, optimizer: Optimizer | None = None, criterion: Callable[..., Any] | None = None
    ) -> tuple[Any, ...]:
        scaled = None if optimizer is None else ScaledOptimizer(optimizer, **self.torch_amp_kwargs)
        return TorchAMPModule(model), scaled, criterion
