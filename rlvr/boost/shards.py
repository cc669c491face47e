"""Between a model's whole weights and the parts of them that the processes of a replica hold."""

from typing import Any

import torch
import torch.distributed as dist
from colossalai.tensor.d_tensor import (
    get_sharding_spec,
    is_customized_distributed_tensor,
    is_distributed_tensor,
)
from torch import Tensor, nn


class Shards:
    """Knows of every weight which processes hold it and along which dimension it is cut.

    Args:
        whole: the model with all its weights.
        local: the same model after sharding: weights cut for tensor parallelism, and only those of its pipeline stage.
        tp_group: the processes among which a weight is cut.
        pp_group: the processes that hold the stages.
    """

    def __init__(
        self, whole: nn.Module, local: nn.Module, tp_group: dist.ProcessGroup, pp_group: dist.ProcessGroup
    ) -> None:
        self.tp_group, self.pp_group = tp_group, pp_group
        names = {id(p): name for name, p in whole.named_parameters()}
        # Tied weights have one name in the whole model, and may lie in two stages.
        first = {name: names[id(p)] for name, p in whole.named_parameters(remove_duplicate=False)}
        self.shapes = {name: p.shape for name, p in whole.named_parameters()}
        self.device = next(local.parameters()).device
        self.held: dict[str, list[nn.Parameter]] = {}
        for name, parameter in local.named_parameters(remove_duplicate=False):
            copies = self.held.setdefault(first[name], [])
            if not any(parameter is copy for copy in copies):
                copies.append(parameter)
        self.owners = self._find_owners()

    def _find_owners(self) -> dict[str, int]:
        """The first stage that holds each weight."""
        mine = torch.tensor([name in self.held for name in self.shapes], dtype=torch.int32, device=self.device)
        stages = [torch.zeros_like(mine) for _ in range(self.pp_group.size())]
        dist.all_gather(stages, mine, group=self.pp_group)
        return dict(zip(self.shapes, torch.stack(stages).argmax(0).tolist(), strict=True))

    def gather(self, name: str, part: Tensor | None, dtype: torch.dtype) -> Tensor:
        """All of what each process has a part of, such as a weight or its moments. Collective within a replica.

        Args:
            name: of the weight that it is cut like.
            part: this process's; None in a stage that does not hold the weight.
            dtype: of all parts.
        """
        shape = self.shapes[name]
        full = self._join(name, part, shape) if part is not None and name in self.held else None
        if self.pp_group.size() == 1:
            assert full is not None, name
            return full
        if full is None:
            full = torch.empty(shape, dtype=dtype, device=self.device)
        source = dist.get_global_rank(self.pp_group, self.owners[name])
        dist.broadcast(full, source, group=self.pp_group)
        return full

    def _join(self, name: str, part: Tensor, shape: torch.Size) -> Tensor:
        weight: Any = self.held[name][0]
        part = part.detach().to(self.device)
        if is_customized_distributed_tensor(weight):
            part = weight.gather_fn(part)
        elif is_distributed_tensor(weight):
            parts = [torch.empty_like(part) for _ in range(self.tp_group.size())]
            dist.all_gather(parts, part.contiguous(), group=self.tp_group)
            (dimension,) = get_sharding_spec(weight).dim_partition_dict
            part = torch.cat(parts, dim=dimension)
        # Vocabularies are padded until they divide.
        return part[tuple(slice(0, size) for size in shape)].contiguous()

    def cut(self, name: str, full: Tensor) -> Tensor:
        """This process's part of a tensor that is cut like a weight that it holds."""
        weight: Any = self.held[name][0]
        full = full.to(weight.device)
        if is_customized_distributed_tensor(weight):
            return weight.shard_fn(full)
        if not is_distributed_tensor(weight):
            return _padded(full, weight.shape)
        (dimension,) = get_sharding_spec(weight).dim_partition_dict
        size = list(weight.shape)
        size[dimension] *= self.tp_group.size()
        parts = _padded(full, torch.Size(size)).chunk(self.tp_group.size(), dimension)
        return parts[dist.get_rank(self.tp_group)].clone()


def _padded(full: Tensor, shape: torch.Size) -> Tensor:
    """Zeros behind each dimension up to this shape."""
    missing = [size - now for now, size in zip(full.shape, shape, strict=True)]
    return nn.functional.pad(full, [n for size in reversed(missing) for n in (0, size)]) if any(missing) else full
