"""Gemini: weights, gradients and optimizer state in chunks that are sharded over processes and moved as they are needed.

`GeminiRolePlugin` is ColossalAI's plugin with what a role of ours needs besides: gradients accumulate over micro-batches,
the optimizer is torch's AdamW, and the copy that generates and is saved is made before the weights go into chunks.
Source: Fang et al., "Parallel Training of Pre-Trained Models via Chunk-Based Dynamic Memory Management", arXiv:2108.05818.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from colossalai.accelerator import get_accelerator
from colossalai.booster.plugin import GeminiPlugin
from colossalai.zero.gemini import gemini_optimizer
from colossalai.zero.gemini.chunk import ChunkManager
from colossalai.zero.gemini.gemini_optimizer import GeminiOptimizer
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils._pytree import tree_leaves

from rlvr.boost.layout import MetaCopy, ShardedLayout
from rlvr.errors import UserError

_MOMENTS = ("exp_avg", "exp_avg_sq")


class _Part(NamedTuple):
    """A process's part of a parameter: its stand-in in the optimizer, the chunk, the range within the chunk's shard, and the
    place within the flattened parameter."""

    fake: Tensor
    chunk: Any
    range: slice
    place: slice


class GeminiLayout(ShardedLayout):
    """For `GeminiRolePlugin`. Weights are gathered from the float32 masters, which ColossalAI's own `state_dict` leaves out."""

    optimizer: GeminiOptimizer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """With automatic placement Gemini has to observe a forward and backward pass first: it gets one, with a loss of 0."""
        manager = self.model.gemini_manager
        if not torch.is_grad_enabled() and manager.need_warmup and manager.is_warmup():
            with torch.enable_grad():
                out = tree_leaves(self.model(*args, **kwargs))
                self.optimizer.backward(sum(0.0 * t.sum() for t in out if isinstance(t, Tensor) and t.requires_grad))
        return super().forward(*args, **kwargs)

    def gradients(self) -> list[Tensor]:
        # Not whole chunks: what lies behind the last parameter of a chunk was never set.
        parts = (self._own(index) for index in self.optimizer.id_to_real_params)
        return [own.chunk.grad_chunk.payload[own.range] for own in parts if own is not None and own.chunk.grad_chunk]

    def step(self, limit: float, norm: float) -> float:
        """Gemini clips inside `step`, to the limit that the plugin was made with. Infinite where fp16 has overflowed."""
        optimizer, scale = self.optimizer, self.optimizer.mix_precision_mixin.get_grad_div_scale()
        optimizer._current_grad_norm = None
        optimizer.step()
        found = optimizer.get_grad_norm()
        return float("inf") if found is None else found / scale

    def discard(self) -> None:
        super().discard()
        # Where the optimizer did not step, ColossalAI 0.5.0 would add the next gradients to these.
        self.optimizer.chunk_manager.accumulating_grads = False
        for chunk in self.optimizer.chunk16_set:
            if chunk.grad_chunk is not None:
                chunk.grad_chunk.l2_norm = None

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
        """This process's part of a parameter; None if it has none."""
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
        shape = self.meta_copy.shape(self.model.param2name[self.optimizer.id_to_real_params[index]])
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


# Gemini hands its optimizer float32 masters with gradients in the run's precision and a divisor. ColossalAI's own AdamWs
# know what to do, but want a CUDA compiler; here `_prepare_gradients` does it.
gemini_optimizer._AVAIL_OPTIM_LIST.add(AdamW)
_rearrange = ChunkManager.rearrange_accumulated_grad_chunk


def _keep_accumulated(manager: ChunkManager, chunk: Any) -> Any:
    """Before a further backward pass: the gradients so far, which are a mean over processes. Those of sharded chunks are
    multiplied by the number of processes, because each adds its shard alone. ColossalAI 0.5.0 does so to chunks, too, that
    every process holds (all of a model with fewer than 32 million parameters), and counts their gradients several times.
    """
    if not chunk.grad_chunk.is_gathered:
        return _rearrange(manager, chunk)
    accumulated = chunk.grad_chunk.cuda_global_chunk.clone()
    gradients = manager.init_grad_chunk(chunk)
    gradients.cuda_global_chunk.copy_(accumulated)
    return gradients


ChunkManager.rearrange_accumulated_grad_chunk = _keep_accumulated


class GeminiRolePlugin(GeminiPlugin):
    """Gemini for one role.

    Args:
        precision: "bf16" or "fp16".
        placement: "static": everything on the GPU, sharded; "auto": moves to main memory what does not fit.
        grad_clip: norm to which gradients are clipped, 0 = off.
    """

    def __init__(self, precision: str, placement: str, grad_clip: float) -> None:
        super().__init__(
            placement_policy=placement,
            precision=precision,
            max_norm=grad_clip or float("inf"),  # not 0, with which the norm is not computed
            enable_gradient_accumulation=True,
            enable_async_reduce=False,
        )

    def configure(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        criterion: Callable[..., Any] | None = None,
        dataloader: Any = None,
        lr_scheduler: Any = None,
    ) -> tuple[Any, ...]:
        """Put the model's weights into chunks.

        Raises:
            UserError: weights that don't learn, no optimizer, or another one than AdamW.
        """
        if type(optimizer) is not AdamW:
            raise UserError(f"--plugin gemini wants torch.optim.AdamW, not {type(optimizer).__name__}")
        learned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        if frozen := [name for name, p in model.named_parameters() if id(p) not in learned or not p.requires_grad]:
            raise UserError(
                f"--plugin gemini trains all weights, and {len(frozen)} don't learn ({frozen[0]}, ...): with LoRA take ddp, "
                "zero1, zero2 or fsdp"
            )
        meta_copy = MetaCopy(model)
        optimizer.register_step_pre_hook(_prepare_gradients)
        boosted, *rest = super().configure(model, optimizer, criterion, dataloader, lr_scheduler)
        boosted.meta_copy_holder = (meta_copy,)  # in a tuple, or the copy would count as a part of the model
        return boosted, *rest

    def make_layout(self, booster: Any, model: Any, optimizer: Any) -> GeminiLayout:
        return GeminiLayout(booster, model, optimizer, model.meta_copy_holder[0])


def _prepare_gradients(optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Gradients in the masters' precision, divided by `div_scale` (the loss's scale and the clipping; -1 = not at all)."""
    scale = kwargs.pop("div_scale", -1)
    for group in optimizer.param_groups:
        for p in group["params"]:
            gradient = p.grad.to(p.dtype)
            p.grad = None
            p.grad = gradient.div_(scale) if scale > 0 else gradient
    return args, kwargs
