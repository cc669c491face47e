"""`FsdpPlugin`: PyTorch's `fully_shard` (FSDP2) as a ColossalAI Booster plugin, on CPUs and GPUs.

Each parameter is cut along its first dimension among all processes (a `DTensor`); a decoder layer's weights are whole in a
process only while the layer runs. The embedding, the head and whatever lies outside of the layers are one more unit, the
role itself, so that what reads the head's matrix inside the role's `forward` finds it whole.
Source: Zhao et al., "PyTorch FSDP", arXiv:2304.11277; Liang et al., "TorchTitan", arXiv:2410.06511, section 2.1.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from colossalai.booster.plugin.dp_plugin_base import DPPluginBase
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.checkpoint_io.utils import load_state_dict, save_state_dict
from colossalai.interface import ModelWrapper, OptimizerWrapper
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from rlvr.boost.layout import MetaCopy, ShardedLayout
from rlvr.boost.process import ACCELERATORS, local_device
from rlvr.boost.tensor_files import read_tensors, write_tensors
from rlvr.errors import UserError

try:
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
except ImportError:  # torch 2.5
    from torch.distributed._composable.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard


_DTYPES = {"fp32": None, "bf16": torch.bfloat16}


def whole_parameters(module: nn.Module, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Name and whole tensor of each parameter, one after the other, cast before they are exchanged. Collective."""
    _reshard(module)
    for name, p in module.named_parameters():
        shard: Any = p.detach()
        yield name, (shard if dtype is None else shard.to(dtype)).full_tensor()


def set_parameters(module: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Take over whole tensors for some or all of the parameters."""
    with torch.no_grad():
        for shard, part in own_parts(module, weights):
            shard.copy_(part)


def own_parts(module: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    """This process's shard of each of these parameters, to be changed in place, and the same part of the whole tensor."""
    _reshard(module)
    own: dict[str, Any] = dict(module.named_parameters())
    for name, whole in weights.items():
        yield own[name].to_local(), _part(whole, own[name])


def whole_optimizer_state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state dict with whole tensors in main memory, in rank 0; elsewhere without them. Collective."""
    state = optimizer.state_dict()
    is_main = dist.get_rank() == 0
    whole: dict[int, dict[str, Any]] = {}
    for index, of_parameter in state["state"].items():
        full = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in of_parameter.items()}
        if is_main:
            whole[index] = {k: v.cpu() if isinstance(v, Tensor) else v for k, v in full.items()}
    return {"state": whole, "param_groups": state["param_groups"]}


def set_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Take over a state dict with whole tensors."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    shards = {
        index: {k: _shard(v, parameters[index]) for k, v in of_parameter.items()}
        for index, of_parameter in state["state"].items()
    }
    optimizer.load_state_dict({"state": shards, "param_groups": state["param_groups"]})


def _shard(value: Any, parameter: Any) -> Any:
    """A value that is as large as the parameter, cut as it is; any other (a step count) as it comes."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    own = _part(value, parameter).to(parameter.device).clone()
    return DTensor.from_local(
        own, parameter.device_mesh, parameter.placements, run_check=False, shape=value.shape, stride=parameter.stride()
    )


def _part(whole: Tensor, parameter: Any) -> Tensor:
    """This process's share of a whole tensor: `torch.chunk` along the first dimension, of which the last may be empty."""
    size = -(-whole.size(0) // dist.get_world_size())
    return whole.narrow(0, min(dist.get_rank() * size, whole.size(0)), parameter.to_local().size(0))


def _reshard(module: nn.Module) -> None:
    """Make the parameters shards again: a forward pass without a backward pass leaves the outermost unit's weights whole, and
    its parameters are then copies."""
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()


class FsdpCheckpointIO(GeneralCheckpointIO):
    """`Booster.save_model` and its relatives: single files with whole tensors. (rlvr's own checkpoints go through the layout.)

    Rank 0 writes what all gather; every process reads the file and keeps its part. Files fit any number of processes, and
    those of a model fit the module without plugin.
    """

    def save_unsharded_model(
        self, model: nn.Module, checkpoint: str, gather_dtensor: bool, use_safetensors: bool, use_async: bool = False
    ) -> None:
        is_main = dist.get_rank() == 0
        whole = {name: tensor.cpu() for name, tensor in whole_parameters(model) if is_main}
        if is_main:
            save_state_dict(whole, checkpoint, use_safetensors)

    def load_unsharded_model(
        self, model: nn.Module, checkpoint: str, strict: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        given = load_state_dict(checkpoint)
        own = dict(model.named_parameters())
        if strict and (wrong := sorted(name for name in own if name not in given)):
            raise UserError(f"{checkpoint} holds another model: it lacks {', '.join(wrong[:3])}")
        set_parameters(model, {name: given[name] for name in own if name in given})

    def save_unsharded_optimizer(
        self, optimizer: Any, checkpoint: str, gather_dtensor: bool, use_async: bool = False
    ) -> None:
        whole = whole_optimizer_state(optimizer.optim)
        if dist.get_rank() == 0:
            write_tensors(whole, Path(checkpoint))

    def load_unsharded_optimizer(self, optimizer: Any, checkpoint: str, *args: Any, **kwargs: Any) -> None:
        set_optimizer_state(optimizer.optim, read_tensors(Path(checkpoint)))

    def save_sharded_model(self, *args: Any, **kwargs: Any) -> None:
        """Not under FSDP.

        Raises:
            UserError: always.
        """
        raise UserError("under FSDP models and optimizers are saved as one file: give shard=False")

    save_sharded_optimizer = save_sharded_model


class FsdpLayout(ShardedLayout):
    """For `FsdpPlugin`: weights, gradients and optimizer state are sharded over all processes. The sharded weights are as precise as they came, so there are no other masters."""

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype or super().dtype

    def gather(self, exact: bool) -> Iterator[tuple[str, Tensor]]:
        return whole_parameters(self.unwrapped, None if exact else self.model.dtype)

    def scatter(self, weights: dict[str, Tensor]) -> None:
        set_parameters(self.unwrapped, weights)

    def gradients(self) -> list[Tensor]:
        return self.optimizer.gradients()

    def optimizer_state(self) -> dict[str, Any]:
        return whole_optimizer_state(self.optimizer.optim)

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        set_optimizer_state(self.optimizer.optim, state)

    def load_masters(self, masters: list[Tensor]) -> None:
        names = {id(p): name for name, p in self.unwrapped.named_parameters()}
        learned = [p for group in self.optimizer.param_groups for p in group["params"]]
        with torch.no_grad():
            self.scatter({names[id(p)]: given for p, given in zip(learned, masters, strict=True)})


class FsdpModel(ModelWrapper):
    """A module that `fully_shard` has taken apart.

    Args:
        module: sharded.
        meta_copy: of the module as it was.
        dtype: of the weights in forward passes; None = as they are.
    """

    def __init__(self, module: nn.Module, meta_copy: MetaCopy, dtype: torch.dtype | None) -> None:
        super().__init__(module)
        # In a tuple, or the copy would count as a part of this module.
        self._meta_copy_holder, self.dtype = (meta_copy,), dtype

    @property
    def meta_copy(self) -> MetaCopy:
        return self._meta_copy_holder[0]


class FsdpOptimizer(OptimizerWrapper):
    """An optimizer over sharded parameters, whose gradients' norm is that of all shards together."""

    def gradients(self) -> list[Tensor]:
        """This process's shards of the gradients."""
        return [p.grad.to_local() for g in self.optim.param_groups for p in g["params"] if p.grad is not None]

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
        gradients = self.gradients()
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
        model.to(local_device())
        meta_copy = MetaCopy(model)
        names = {id(p): name for name, p in model.named_parameters()}
        shard(model, self.dtype)
        if optimizer is not None:
            sharded = dict(model.named_parameters())
            for group in optimizer.param_groups:
                group["params"] = [sharded[names[id(p)]] for p in group["params"]]
            optimizer = FsdpOptimizer(optimizer)
        return FsdpModel(model, meta_copy, self.dtype), optimizer, criterion, dataloader, lr_scheduler

    def make_layout(self, booster: Any, model: FsdpModel, optimizer: Any) -> FsdpLayout:
        return FsdpLayout(booster, model, optimizer, model.meta_copy)

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
        return ["cpu", *ACCELERATORS]

    def control_checkpoint_io(self) -> bool:
        return True

    def get_checkpoint_io(self) -> FsdpCheckpointIO:
        return FsdpCheckpointIO()


def shard(model: nn.Module, dtype: torch.dtype | None, *, always: bool = False) -> None:
    """Cut the weights of a model among all processes, in place: a unit for each of its layers, and one for the rest. Collective.

    Args:
        dtype: of the weights in forward passes; None = as they are. Gradients are then summed in float32.
        always: let the rest go, too, as soon as it has been used. What learns keeps it for the backward pass.
    """
    mesh = init_device_mesh(local_device().type, (dist.get_world_size(),))
    reduce = torch.float32 if dtype is not None else None
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=reduce)
    for layer in decoder_layers(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    if always:
        fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=True)
    else:
        fully_shard(model, mesh=mesh, mp_policy=policy)


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The blocks of the model: the members of the list of modules that holds the most parameters; none if there is no
    such list."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList) and len(module)]
    return list(max(lists, key=lambda layers: sum(p.numel() for p in layers.parameters()), default=[]))
