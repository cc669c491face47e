"""`FsdpPlugin`: PyTorch's `fully_shard` (FSDP2) as a ColossalAI Booster plugin, on CPUs and GPUs.

Each parameter is cut along its first dimension among all processes (a `DTensor`); a decoder layer's weights are whole in a
process only while the layer runs. The embedding, the head and whatever lies outside of the layers are one more unit, the
role itself, so that what reads the head's matrix inside the role's `forward` finds it whole.
Source: Zhao et al., "PyTorch FSDP", arXiv:2304.11277; Liang et al., "TorchTitan", arXiv:2410.06511, section 2.1.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from colossalai.booster.plugin.dp_plugin_base import DPPluginBase
from colossalai.interface import ModelWrapper, OptimizerWrapper
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.optim import Optimizer

from rlvr.boost.fsdp_io import FsdpCheckpointIO
from rlvr.boost.fsdp_layout import FsdpLayout
from rlvr.boost.fsdp_state import MixedPrecisionPolicy, fully_shard
from rlvr.boost.twin import Twin
from rlvr.errors import UserError

_DTYPES = {"fp32": None, "bf16": torch.bfloat16}


class FsdpModel(ModelWrapper):
    """A module that `fully_shard` has taken apart.

    Args:
        module: sharded.
        twin: of the module as it was.
        dtype: of the weights in forward passes; None = as they are.
    """

    def __init__(self, module: nn.Module, twin: Twin, dtype: torch.dtype | None) -> None:
        super().__init__(module)
        # In a tuple, or the twin would count as a part of this module.
        self._beside, self.dtype = (twin,), dtype

    @property
    def twin(self) -> Twin:
        return self._beside[0]


class FsdpOptimizer(OptimizerWrapper):
    """An optimizer over sharded parameters, whose gradients' norm is that of all shards together."""

    def clip_grad_by_norm(
        self,
        max_norm: float | int,
        norm_type: float | int = 2,
        error_if_nonfinite: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """Scale the gradients down to the norm. Returns what it was. Collective."""
        if norm_type != 2:
            raise ValueError(f"only the 2-norm is known here, not {norm_type}")
        gradients = [p.grad.to_local() for g in self.optim.param_groups for p in g["params"] if p.grad is not None]
        device = gradients[0].device if gradients else torch.device("cpu")
        total = torch.zeros((), device=device)
        for gradient in gradients:
            total += gradient.float().square().sum()
        dist.all_reduce(total)
        norm = total.sqrt()
        if error_if_nonfinite and not norm.isfinite():
            raise RuntimeError(f"the norm of the gradients is {float(norm)}")
        scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale)
        return norm


class FsdpPlugin(DPPluginBase):
    """Shards weights, gradients and optimizer state over all processes.

    Args:
        precision: "fp32", or "bf16": forward and backward passes with weights in bf16, gradients summed over processes in
            float32, and weights that are stored and updated in the precision in which they came.
    """

    def __init__(self, precision: str = "fp32") -> None:
        super().__init__()
        self.dtype = _DTYPES[precision]

    def configure(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        criterion: Callable[..., Any] | None = None,
        dataloader: Any = None,
        lr_scheduler: Any = None,
    ) -> tuple[Any, ...]:
        """Shard the model in place, and give the optimizer (in place, too) the shards of its parameters."""
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        model.to(kind if kind == "cpu" else torch.device(kind, torch.cuda.current_device()))
        twin = Twin(model)
        names = {id(p): name for name, p in model.named_parameters()}
        mesh = init_device_mesh(kind, (dist.get_world_size(),))
        reduce = torch.float32 if self.dtype is not None else None
        policy = MixedPrecisionPolicy(param_dtype=self.dtype, reduce_dtype=reduce)
        for layer in decoder_layers(model):
            fully_shard(layer, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        if optimizer is not None:
            sharded = dict(model.named_parameters())
            for group in optimizer.param_groups:
                group["params"] = [sharded[names[id(p)]] for p in group["params"]]
            optimizer = FsdpOptimizer(optimizer)
        return FsdpModel(model, twin, self.dtype), optimizer, criterion, dataloader, lr_scheduler

    def make_layout(self, booster: Any, model: FsdpModel, optimizer: Any) -> FsdpLayout:
        return FsdpLayout(booster, model, optimizer, model.twin)

    @contextmanager
    def no_sync(self, model: nn.Module, optimizer: OptimizerWrapper | None = None) -> Iterator[None]:
        """Keep whole gradients in each process instead of reducing them."""
        module: Any = model.module
        module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            module.set_requires_gradient_sync(True)

    def support_no_sync(self) -> bool:
        return True

    def support_lora(self) -> bool:
        return False

    def enable_lora(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        """Not this way.

        Raises:
            UserError: always.
        """
        raise UserError("put the LoRA adapters into the model (rlvr.models.lora.apply_lora) before booster.boost")

    def control_precision(self) -> bool:
        return True

    def supported_precisions(self) -> list[str]:
        return list(_DTYPES)

    def control_device(self) -> bool:
        return True

    def supported_devices(self) -> list[str]:
        return ["cpu", "cuda"]

    def control_checkpoint_io(self) -> bool:
        return True

    def get_checkpoint_io(self) -> FsdpCheckpointIO:
        return FsdpCheckpointIO()


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The blocks of the model: the members of the list of modules that holds the most parameters; none if there is no
    such list."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)]
    return list(max(lists, key=lambda layers: sum(p.numel() for p in layers.parameters()), default=[]))
