"""The layout of `3d`: weights cut for tensor parallelism and laid out in pipeline stages.

Only learning runs in parts, through a 1F1B pipeline schedule. Sampling, scoring and saving run on the whole model, which
each process is given for as long as they last. `Shards` takes whole weights apart and puts them together; `HybridLayout`
does it for weights, their float32 masters and AdamW's moments.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from colossalai.pipeline import p2p
from colossalai.pipeline.schedule import OneForwardOneBackwardSchedule
from colossalai.pipeline.stage_manager import PipelineStageManager
from colossalai.tensor.d_tensor import (
    get_sharding_spec,
    is_customized_distributed_tensor,
    is_distributed_tensor,
)
from torch import Tensor, nn

from rlvr.boost.layout import MetaCopy, ShardedLayout
from rlvr.boost.process import Replica, replica_with_group
from rlvr.boost.zero import zero_gradients

if TYPE_CHECKING:
    from colossalai.booster import Booster


# It asks for Huawei's backend by names that only Huawei's build of torch has; its other function asks for NCCL alone.
p2p._check_for_nccl_hccl_backend = p2p.check_for_nccl_backend


MOMENTS = ("exp_avg", "exp_avg_sq")
"""AdamW's state of each weight, beside the number of steps."""


class RaggedSchedule(OneForwardOneBackwardSchedule):
    """1F1B over a list of passes; what a pass is stands in `rlvr.boost.boosted`."""

    def __init__(self, stage_manager: PipelineStageManager) -> None:
        # Both sizes are asked for and not read here: `load_batch` sets what is.
        super().__init__(stage_manager, num_microbatches=1, microbatch_size=1, enable_metadata_cache=False)
        self._inputs: list[Sequence[Any]] = []

    def load_batch(self, data_iter: Any, device: Any = None) -> None:
        """Take the inputs of all passes."""
        self._inputs = list(next(data_iter))
        self.num_microbatches = len(self._inputs)

    def load_micro_batch(self) -> Sequence[Any]:
        """The inputs of the next pass."""
        return self._inputs.pop(0)


class LossesInOrder:
    """The criterion for a pipeline schedule, which asks for the losses of passes in their order and divides each by their number.

    Args:
        losses: from a pass's output to its share of the loss.
        factor: of each share.
    """

    def __init__(self, losses: Sequence[Callable[[Any], Tensor]], factor: float) -> None:
        self._losses, self._factor = list(losses), factor * len(losses)

    def __call__(self, output: Any, inputs: Any) -> Tensor:
        return self._losses.pop(0)(output) * self._factor


class Shards:
    """Between a model's whole weights and the parts of them that the processes of a replica hold.

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


class HybridLayout(ShardedLayout):
    """For `HybridParallelPlugin`."""

    def __init__(self, booster: "Booster", model: Any, optimizer: Any, meta_copy: MetaCopy) -> None:
        super().__init__(booster, model, optimizer, meta_copy)
        # A `HybridRolePlugin`, whose module imports this one.
        plugin: Any = booster.plugin
        self.plugin = plugin
        self.role = model.unwrap().role
        self.shards = Shards(meta_copy.module, self.role, plugin.tp_group, plugin.pp_group)
        self._replica = replica_with_group(plugin.tp_size * plugin.pp_size * plugin.sp_size)

    @property
    def unwrapped(self) -> Any:
        """The role with what this process has of its weights."""
        return self.role

    @property
    def original(self) -> Any:
        """The copy itself: what was set on the role to cut it up is not for the whole."""
        return self.meta_copy.module

    @property
    def replica(self) -> Replica:
        return self._replica

    @property
    def reports(self) -> bool:
        """True in one process of a replica, which must have the last stage."""
        return self.model.unwrap().is_last and all(
            dist.get_rank(group) == 0 for group in (self.plugin.tp_group, self.plugin.sp_group)
        )

    @property
    def can_skip_sync(self) -> bool:
        return self.plugin.zero_stage < 2

    def accumulate(self, losses: Sequence[Any], each: Callable[[Sequence[Any]], None]) -> None:
        if self.plugin.pp_size == 1:
            each(losses)
            return
        criterion = LossesInOrder([one.loss for one in losses], self.replica.count)
        inputs = [one.inputs for one in losses]
        self.booster.execute_pipeline(iter([inputs]), self.model, criterion, self.optimizer, return_loss=False)

    @contextmanager
    def scoring(self, forward: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
        """The whole model: processes of a replica have samples of their own."""
        with self.full_weights() as module:
            yield module

    def gradients(self) -> Iterable[Tensor]:
        return zero_gradients(self.optimizer) if self.plugin.zero_stage else super().gradients()

    def step(self, limit: float, norm: float) -> float:
        """The plugin's optimizers clip inside `step`, to the limit that the plugin was made with."""
        self.optimizer.step()
        return float(self.optimizer.get_grad_norm() or 0.0)

    def gather(self, exact: bool) -> Iterator[tuple[str, Tensor]]:
        dtype = torch.float32 if exact else next(self.role.parameters()).dtype
        for name in self.shards.shapes:
            part = self._part(name, lambda p: self._master(p) if exact else p)
            yield name, self.shards.gather(name, part, dtype)

    def scatter(self, weights: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, full in weights.items():
                for working in self.shards.held.get(name, ()):
                    part = self.shards.cut(name, full.detach())
                    working.data.copy_(part)
                    if self.optimizer is not None and working.requires_grad:
                        self._set_master(working, part)

    def optimizer_state(self) -> dict[str, Any]:
        """As any data-parallel plugin's: full tensors under the numbers of the whole model's parameters."""
        group = {k: v for k, v in self.optimizer.param_groups[0].items() if k != "params"}
        names = list(self.shards.shapes)
        states = {}
        if self._has_state():
            for number, name in enumerate(names):
                moments = {
                    key: self.shards.gather(name, self._part(name, partial(self._moment, key)), torch.float32).cpu()
                    for key in MOMENTS
                }
                states[number] = {"step": self._steps(), **moments}
        return {"state": states, "param_groups": [group | {"params": list(range(len(names)))}]}

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        optim = self.optimizer.optim
        for key, value in state["param_groups"][0].items():
            if key != "params":
                optim.param_groups[0][key] = value
        for number, name in enumerate(self.shards.shapes):
            for working in self.shards.held.get(name, ()):
                saved = state["state"].get(number)
                if saved is None:
                    continue
                master = self._own_master(working)
                fused = optim.param_groups[0].get("fused")
                step = saved["step"].clone().to(master.device if fused else "cpu")
                moments = {key: self._own_share(working, self.shards.cut(name, saved[key])) for key in MOMENTS}
                optim.state[master] = {"step": step, **{k: v.to(master).clone() for k, v in moments.items()}}

    def load_masters(self, masters: list[Tensor]) -> None:
        self.scatter(dict(zip(self.shards.shapes, masters, strict=True)))

    def _part(self, name: str, of: Callable[[nn.Parameter], Tensor]) -> Tensor | None:
        """This process's part of something that is kept for each weight; None where it hasn't got the weight."""
        held = self.shards.held.get(name)
        return of(held[0]) if held else None

    def _has_state(self) -> bool:
        """True once the optimizer has made a step; the same in all processes."""
        return bool(self.optimizer.optim.state)

    def _steps(self) -> Tensor:
        return next(iter(self.optimizer.optim.state.values()))["step"].clone().cpu()

    def _moment(self, key: str, working: nn.Parameter) -> Tensor:
        return self._joined(working, self.optimizer.optim.state[self._own_master(working)][key])

    def _master(self, working: nn.Parameter) -> Tensor:
        """This stage's part of a weight in float32."""
        return self._joined(working, self._own_master(working)) if self.optimizer is not None else working.float()

    def _set_master(self, working: nn.Parameter, part: Tensor) -> None:
        master = self._own_master(working)
        if master is not working:
            master.data.copy_(self._own_share(working, part))

    def _own_master(self, working: nn.Parameter) -> Tensor:
        """The tensor that the optimizer steps on for this weight: ZeRO's share of it, a float32 copy, or the weight itself."""
        if self.plugin.zero_stage:
            return self.optimizer.get_working_to_master_map()[id(working)]
        return self.optimizer.working_to_master_map[working] if self.plugin.precision != "fp32" else working

    def _own_share(self, working: nn.Parameter, part: Tensor) -> Tensor:
        """ZeRO divides what is kept for a weight among the replicas."""
        if not self.plugin.zero_stage:
            return part
        group = self.plugin.mixed_dp_group
        padded = nn.functional.pad(part.flatten(), (0, -part.numel() % group.size()))
        return padded.chunk(group.size())[dist.get_rank(group)]

    def _joined(self, working: nn.Parameter, own: Tensor) -> Tensor:
        """The inverse of `_own_share`. Collective among replicas."""
        if not self.plugin.zero_stage:
            return own
        group, own = self.plugin.mixed_dp_group, own.to(working.device)
        shares = [torch.empty_like(own) for _ in range(group.size())]
        dist.all_gather(shares, own.contiguous(), group=group)
        return torch.cat(shares)[: working.numel()].view_as(working)
