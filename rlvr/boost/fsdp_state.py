"""Whole tensors from FSDP's shards, and shards from whole tensors."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

try:
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
except ImportError:  # torch 2.5
    from torch.distributed._composable.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

__all__ = ["MixedPrecisionPolicy", "fully_shard"]


def whole_parameters(module: nn.Module, dtype: torch.dtype | None = None) -> Iterator[tuple[str, Tensor]]:
    """Name and whole tensor of each parameter, one after the other, cast before they are exchanged. Collective."""
    _reshard(module)
    for name, p in module.named_parameters():
        shard: Any = p.detach()
        yield name, (shard if dtype is None else shard.to(dtype)).full_tensor()


def set_parameters(module: nn.Module, weights: dict[str, Tensor]) -> None:
    """Take over whole tensors for some or all of the parameters."""
    _reshard(module)
    own: dict[str, Any] = dict(module.named_parameters())
    with torch.no_grad():
        for name, tensor in weights.items():
            own[name].to_local().copy_(_part(tensor, own[name]))


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
    """What is as large as the parameter, cut as it is; else (step counts) the value itself."""
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
    """A forward pass without a backward pass leaves the outermost unit's weights whole, and its parameters are then
    copies."""
    for unit in module.modules():
        if isinstance(unit, FSDPModule):
            unit.reshard()
