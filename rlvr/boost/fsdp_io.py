"""`Booster.save_model` and its relatives under FSDP: single files with whole tensors."""

from typing import Any

import torch
import torch.distributed as dist
from colossalai.checkpoint_io import GeneralCheckpointIO
from colossalai.checkpoint_io.utils import load_state_dict, save_state_dict
from torch import nn

from rlvr.boost.fsdp_state import set_optimizer_state, set_parameters, whole_optimizer_state, whole_parameters
from rlvr.errors import UserError


class FsdpCheckpointIO(GeneralCheckpointIO):
    """Rank 0 writes what all gather; every process reads the file and keeps its part. Files fit any number of processes,
    and those of a model fit the module without plugin."""

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
            torch.save(whole, checkpoint)

    def load_unsharded_optimizer(self, optimizer: Any, checkpoint: str, *args: Any, **kwargs: Any) -> None:
        set_optimizer_state(optimizer.optim, torch.load(checkpoint, map_location="cpu", weights_only=True))

    def save_sharded_model(self, *args: Any, **kwargs: Any) -> None:
        """Not under FSDP.

        Raises:
            UserError: always.
        """
        raise UserError("under FSDP models and optimizers are saved as one file: give shard=False")

    save_sharded_optimizer = save_sharded_model
