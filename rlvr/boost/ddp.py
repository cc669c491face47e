"""DDP as a process needs it that is alone: not at all.

torch's wrapper keeps a second copy of all gradients, which it exchanges, and copies every gradient there and back.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed as dist
from colossalai.accelerator import get_accelerator
from colossalai.booster.plugin import TorchDDPPlugin
from colossalai.interface import ModelWrapper, OptimizerWrapper
from torch import nn
from torch.optim import Optimizer


class DdpPlugin(TorchDDPPlugin):
    """ColossalAI's, without torch's wrapper where there is one process. Results are the same, bit for bit."""

    def __init__(self) -> None:
        # Buffers (rotary tables) are the same everywhere and never change: no need to broadcast them.
        super().__init__(broadcast_buffers=False)
        self.alone = dist.get_world_size() == 1

    def configure(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        criterion: Callable[..., Any] | None = None,
        dataloader: Any = None,
        lr_scheduler: Any = None,
    ) -> tuple[Any, ...]:
        if not self.alone:
            return super().configure(model, optimizer, criterion, dataloader, lr_scheduler)
        if optimizer is not None and not isinstance(optimizer, OptimizerWrapper):
            optimizer = OptimizerWrapper(optimizer)
        model = ModelWrapper(model.to(get_accelerator().get_current_device()))
        return model, optimizer, criterion, dataloader, lr_scheduler

    def no_sync(self, model: nn.Module, optimizer: OptimizerWrapper | None = None) -> AbstractContextManager[Any]:
        return nullcontext() if self.alone else super().no_sync(model, optimizer)
