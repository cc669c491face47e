"""Gemini: weights, gradients and optimizer state in chunks that are sharded over processes and moved as they are needed.

`GeminiRolePlugin` is ColossalAI's plugin with what a role of ours needs besides: gradients accumulate over micro-batches,
the optimizer is torch's AdamW, and the twin that generates and is saved is made before the weights go into chunks.
Source: Fang et al., "Parallel Training of Pre-Trained Models via Chunk-Based Dynamic Memory Management", arXiv:2108.05818.
"""

from collections.abc import Callable
from typing import Any

from colossalai.booster.plugin import GeminiPlugin
from colossalai.zero.gemini import gemini_optimizer
from colossalai.zero.gemini.chunk import ChunkManager
from torch import nn
from torch.optim import AdamW, Optimizer

from rlvr.boost.gemini_layout import GeminiLayout
from rlvr.boost.twin import Twin
from rlvr.errors import UserError

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
        twin = Twin(model)
        optimizer.register_step_pre_hook(_prepare_gradients)
        boosted, *rest = super().configure(model, optimizer, criterion, dataloader, lr_scheduler)
        boosted.beside = (twin,)  # in a tuple, or the twin would count as a part of the model
        return boosted, *rest

    def make_layout(self, booster: Any, model: Any, optimizer: Any) -> GeminiLayout:
        return GeminiLayout(booster, model, optimizer, model.beside[0])


def _prepare_gradients(optimizer: Optimizer, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Gradients in the masters' precision, divided by `div_scale` (the loss's scale and the clipping; -1 = not at all)."""
    scale = kwargs.pop("div_scale", -1)
    for group in optimizer.param_groups:
        for p in group["params"]:
            gradient = p.grad.to(p.dtype)
            p.grad = None
            p.grad = gradient.div_(scale) if scale > 0 else gradient
    return args, kwargs
