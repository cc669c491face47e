"""The layout of `3d`: weights cut for tensor parallelism and laid out in pipeline stages.

Only learning runs in parts. Sampling, scoring and saving run on the whole model, which each process is given for as long
as they last.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlvr.boost.layout import ShardedLayout
from rlvr.boost.pipeline import InTurn
from rlvr.boost.replica import Replica, replica_with_group
from rlvr.boost.shards import Shards
from rlvr.boost.twin import Twin

if TYPE_CHECKING:
    from colossalai.booster import Booster

    from rlvr.boost.hybrid import HybridRolePlugin

MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW keeps for each weight, beside the number of steps."""


class HybridLayout(ShardedLayout):
    """For `HybridParallelPlugin`."""

    def __init__(self, booster: "Booster", model: Any, optimizer: Any, twin: Twin) -> None:
        super().__init__(booster, model, optimizer, twin)
        self.plugin = plugin = cast("HybridRolePlugin", booster.plugin)
        self.role = model.unwrap().role
        self.shards = Shards(twin.module, self.role, plugin.tp_group, plugin.pp_group)
        self._replica = replica_with_group(plugin.tp_size * plugin.pp_size * plugin.sp_size)
        self._restore_buffers()

    def _restore_buffers(self) -> None:
        """The plugin has cast buffers (rotary frequencies) too, which would move the positions."""
        exact = dict(self.twin.module.named_buffers())
        for name, buffer in self.role.named_buffers():
            if name in exact and exact[name].shape == buffer.shape:
                buffer.data = exact[name].data.to(buffer.device)

    @property
    def unwrapped(self) -> Any:
        """The role with what this process has of its weights."""
        return self.role

    @property
    def original(self) -> Any:
        """The twin itself: what was set on the role to cut it up is not for the whole."""
        return self.twin.module

    @property
    def replica(self) -> Replica:
        return self._replica

    @property
    def reports(self) -> bool:
        """Whether this process is the one of its replica that counts losses: it must have the last stage."""
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
        criterion = InTurn([one.loss for one in losses], self.replica.count)
        inputs = [one.inputs for one in losses]
        self.booster.execute_pipeline(iter([inputs]), self.model, criterion, self.optimizer, return_loss=False)

    @contextmanager
    def scoring(self, forward: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
        """The whole model: processes of a replica have samples of their own."""
        with self.whole() as module:
            yield module

    def update(self, limit: float) -> float:
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
        """What this process has of something that is kept for each weight; None where it has not got the weight."""
        held = self.shards.held.get(name)
        return of(held[0]) if held else None

    def _has_state(self) -> bool:
        """Whether the optimizer has made a step; the same in all processes."""
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
        """What the optimizer steps on for this weight: ZeRO's share of it, a float32 copy, or the weight itself."""
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
