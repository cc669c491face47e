"""Gemini's layout: everything is sharded, in chunks of many parameters each."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from colossalai.accelerator import get_accelerator
from colossalai.zero.gemini.gemini_optimizer import GeminiOptimizer
from torch import Tensor
from torch.utils._pytree import tree_leaves

from rlvr.boost.layout import ShardedLayout

_MOMENTS = ("exp_avg", "exp_avg_sq")


class _Part(NamedTuple):
    """What a process holds of a parameter: its stand-in in the optimizer, the chunk, the range within the chunk's shard, and
    the place within the flattened parameter."""

    fake: Tensor
    chunk: Any
    range: slice
    place: slice


class GeminiLayout(ShardedLayout):
    """For `GeminiRolePlugin`. Weights are gathered from the float32 masters, which ColossalAI's own `state_dict` leaves out."""

    optimizer: GeminiOptimizer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """With automatic placement Gemini first wants to watch a pass in training: it gets one, with a loss of 0."""
        manager = self.model.gemini_manager
        if not torch.is_grad_enabled() and manager.need_warmup and manager.is_warmup():
            with torch.enable_grad():
                out = tree_leaves(self.model(*args, **kwargs))
                self.optimizer.backward(sum(0.0 * t.sum() for t in out if isinstance(t, Tensor) and t.requires_grad))
        return super().forward(*args, **kwargs)

    def update(self, limit: float) -> float:
        """Gemini clips inside `step`, to the limit that the plugin was made with. Infinite where fp16 has overflowed."""
        optimizer, scale = self.optimizer, self.optimizer.mix_precision_mixin.get_grad_div_scale()
        optimizer._current_grad_norm = None
        optimizer.step()
        norm = optimizer.get_grad_norm()
        return float("inf") if norm is None else norm / scale

    def gather(self, exact: bool) -> Iterator[tuple[str, Tensor]]:
        dtype = torch.float32 if exact else self.model.mixed_precision
        for index, name in self._names():
            yield name, self._whole(index, self._master, dtype)

    def scatter(self, weights: dict[str, Tensor]) -> None:
        for index, name in self._names():
            if name in weights and (own := self._own(index)) is not None:
                part = weights[name].flatten()[own.place]
                own.chunk.payload[own.range].copy_(part)
                own.chunk.paired_chunk.payload[own.range].copy_(part)

    def optimizer_state(self) -> dict[str, Any]:
        state: dict[int, dict[str, Any]] = {}
        for index in self.optimizer.id_to_real_params:
            if steps := self._steps(index):
                moments = {name: self._whole(index, self._moment(name), torch.float32) for name in _MOMENTS}
                if dist.get_rank() == 0:
                    moments = {name: moment.cpu() for name, moment in moments.items()}
                    state[index] = {"step": torch.tensor(float(steps)), **moments}
        groups = zip(self.optimizer.optim.param_groups, self.optimizer.param_groups_backup, strict=True)
        return {"state": state, "param_groups": [{**group, "params": saved["params"]} for group, saved in groups]}

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        optimizer = self.optimizer.optim
        for group, saved in zip(optimizer.param_groups, state["param_groups"], strict=True):
            group.update({name: value for name, value in saved.items() if name != "params"})
        optimizer.state.clear()
        for index, given in state["state"].items():
            if (own := self._own(index)) is not None:
                device = own.chunk.paired_chunk.payload.device
                moments = {name: given[name].flatten()[own.place].to(device).clone() for name in _MOMENTS}
                step = given["step"].clone().to(device if optimizer.param_groups[0].get("fused") else "cpu")
                optimizer.state[own.fake] = {"step": step, **moments}

    def load_masters(self, masters: list[Tensor]) -> None:
        names = dict(self._names())
        self.scatter({names[index]: master for index, master in enumerate(masters)})

    def _names(self) -> Iterator[tuple[int, str]]:
        """Number in the optimizer, and name, of each parameter."""
        for index, parameter in self.optimizer.id_to_real_params.items():
            yield index, self.model.param2name[parameter]

    def _own(self, index: int) -> _Part | None:
        """What this process holds of a parameter, if it does hold something."""
        fake = self.optimizer.id_to_fake_params.get(index)
        if fake is None:
            return None
        start, offset, size = self.optimizer.get_offsets(index)
        return _Part(
            fake, self.optimizer.param_to_chunk16[fake], slice(start, start + size), slice(offset, offset + size)
        )

    def _steps(self, index: int) -> int:
        """Optimizer steps that a parameter has seen. Collective."""
        own = self._own(index)
        steps = 0.0 if own is None else float(self.optimizer.optim.state.get(own.fake, {}).get("step", 0.0))
        total = torch.tensor(steps, device=self._device)
        dist.all_reduce(total, op=dist.ReduceOp.MAX)
        return int(total)

    def _whole(self, index: int, part_of: Callable[[_Part], Tensor], dtype: torch.dtype) -> Tensor:
        """A whole tensor from every process's part: each fills in its own, and the sum with the others' zeros is exact.
        Collective."""
        shape = self.twin.shape(self.model.param2name[self.optimizer.id_to_real_params[index]])
        whole = torch.zeros(shape.numel(), dtype=dtype, device=self._device)
        own = self._own(index)
        if own is not None and not (own.chunk.keep_gathered and dist.get_rank()):
            whole[own.place] = part_of(own).to(whole.device, dtype)
        dist.all_reduce(whole)
        return whole.view(shape)

    def _master(self, own: _Part) -> Tensor:
        return own.chunk.paired_chunk.payload[own.range]

    def _moment(self, name: str) -> Callable[[_Part], Tensor]:
        return lambda own: self.optimizer.optim.state[own.fake][name]

    @property
    def _device(self) -> torch.device:
        return get_accelerator().get_current_device()
