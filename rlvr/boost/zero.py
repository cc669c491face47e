"""ZeRO stages 1 and 2: every process has the weights; the optimizer's state and its fp32 master weights are sharded.

The plugin for stage 1, because ColossalAI's own communicates twice as much; the layout of both stages; and buckets that add up
the gradients of micro-batches in float32.
Source: Rajbhandari et al., "ZeRO", arXiv:1910.02054.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from colossalai.booster.plugin import LowLevelZeroPlugin
from colossalai.zero.low_level.bookkeeping import BucketStore
from colossalai.zero.low_level.low_level_optim import LowLevelZeroOptimizer
from torch import Tensor, nn

from rlvr.boost.layout import Layout


class ZeroOnePlugin(LowLevelZeroPlugin):
    """ZeRO-1: gradients add up whole in each process, and once an optimizer step each gets the sum of its share.

    ColossalAI's stage 1 gives every process the sum of all shares (an all-reduce), which is twice the communication and of
    no use. Its stage 2 sends what is needed, but has no passes that don't synchronise; here they add up before the first
    that does, when no gradient has been cut.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(stage=2, **arguments)

    def support_no_sync(self) -> bool:
        return True

    @contextmanager
    def no_sync(self, model: nn.Module, optimizer: LowLevelZeroOptimizer) -> Iterator[None]:
        optimizer._partition_grads = False
        try:
            with optimizer.no_sync():
                yield
        finally:
            optimizer._partition_grads = True
        for buckets in optimizer.pg_to_bucket_store.values():
            if isinstance(buckets, Float32Buckets):
                buckets.keep(p for group in optimizer._working_param_groups.values() for p in group)


class Float32Buckets(BucketStore):
    """Where weights are shorter than float32, so are the gradients of each backward pass. Their sum is not: of a sum of 128 in
    bf16 the last ones would be rounded away by half. They are exchanged in the short type all the same.

    ColossalAI 0.5.0 adds them up as they come.
    """

    def reset_all(self) -> None:
        super().reset_all()
        self.sums: dict[int, Tensor] = {}

    def keep(self, parameters: Iterable[Tensor]) -> None:
        """Take over the gradients of a pass that was not synchronised."""
        for p in parameters:
            if p.grad is not None:
                self.sums[id(p)] = self._sum(p)
                p.grad = None

    def build_grad_in_bucket(self) -> None:
        """Cut the gradients of the parameters in the bucket among the processes."""
        for p, padding in zip(self._param_list, self._padding_size, strict=True):
            flat = nn.functional.pad(self._sum(p).flatten(), [0, padding])
            self.sums.pop(id(p), None)
            p.grad = None
            for rank, part in enumerate(flat.chunk(self._world_size)):
                self.grad_to_param_mapping[id(part)] = id(p)
                self._grad_in_bucket[rank].append(part)
        self.offset_list.append(0)

    def _sum(self, p: Tensor) -> Tensor:
        """The gradients of all passes so far, in float32."""
        assert p.grad is not None
        new, before = p.grad.detach().float(), self.sums.get(id(p))
        return new if before is None else before.add_(new)


def sum_in_float32(optimizer: LowLevelZeroOptimizer) -> None:
    """Give a ZeRO optimizer these buckets."""
    stores = {pg: Float32Buckets(pg, old.reduce_bucket_size) for pg, old in optimizer.pg_to_bucket_store.items()}
    optimizer.pg_to_bucket_store = stores
    optimizer.pid_to_bucket_store = {id(p): stores[pg] for p, pg in optimizer.param_to_pg.items()}
    optimizer._communication_dtype = optimizer.dtype


def zero_gradients(optimizer: LowLevelZeroOptimizer) -> list[Tensor]:
    """This process's shards of the gradients that ZeRO has reduced."""
    return [g for group in range(optimizer.num_param_groups) for g in optimizer.get_working_grads_by_group_id(group)]


class ZeroLayout(Layout):
    """For `LowLevelZeroPlugin` (stages 1 and 2, with and without offloading)."""

    optimizer: LowLevelZeroOptimizer

    def __init__(self, booster: Any, model: Any, optimizer: Any) -> None:
        super().__init__(booster, model, optimizer)
        if optimizer is None:
            return
        if next(model.parameters()).device.type == "cpu":
            optimizer._overlap_communication = False  # ColossalAI's default, which needs a GPU's streams
        if self._has_masters:
            sum_in_float32(optimizer)

    def gradients(self) -> list[Tensor]:
        return zero_gradients(self.optimizer)

    def step(self, limit: float, norm: float) -> float:
        """ZeRO clips inside `step`, to the limit that the plugin was made with."""
        self.optimizer.step()
        return float(self.optimizer.get_grad_norm() or 0.0)

    def change(self, change: Any) -> None:
        super().change(change)
        if self.optimizer is not None:
            with torch.no_grad():
                self.model.update_master_params()

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        self.change(lambda module: module.load_state_dict(weights))
        if self.optimizer is not None and self._has_masters:
            names = {id(p): name for name, p in self.unwrapped.named_parameters()}
            self.load_masters([weights[names[id(working)]].float() for _, working in self._pairs()])

    def masters(self) -> list[Tensor]:
        if not self._has_masters:
            return []
        full = []
        for master, working in self._pairs():
            own = master.to(working.device)  # offloaded masters are in main memory, where NCCL can't fetch them
            shards = [torch.empty_like(own) for _ in range(dist.get_world_size())]
            dist.all_gather(shards, own)
            full.append(torch.cat(shards)[: working.numel()].view_as(working).cpu())
        return full

    def load_masters(self, masters: list[Tensor]) -> None:
        for (master, _), given in zip(self._pairs(), masters, strict=True):
            flat = given.flatten()
            # Shards are equally long: the end of the last is padding, which `masters` cut off.
            flat = nn.functional.pad(flat, [0, master.numel() * dist.get_world_size() - flat.numel()])
            with torch.no_grad():
                master.copy_(flat.chunk(dist.get_world_size())[dist.get_rank()])

    @property
    def _has_masters(self) -> bool:
        """True if the master weights are more precise than the weights."""
        return self.optimizer.dtype != torch.float32

    def _pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each master shard with its whole weight, in the order of the optimizer's parameters."""
        working = self.optimizer.get_master_to_working_map()
        return [(m, working[id(m)]) for group in self.optimizer.optim.param_groups for m in group["params"]]
