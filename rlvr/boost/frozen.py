"""Models that only infer: the reference, which the KL divergence is measured from, and neural reward models.

`Frozen` holds a model of its own, computed as the models that learn are: logprobs of equal weights are then equal bit for
bit, and the divergence of a policy that has not moved is 0. `AdapterOff` needs none: with LoRA the reference is the actor
without its adapter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from rlvr.boost.layout import exact_buffers
from rlvr.models.actor import Actor, ActorOutput
from rlvr.models.batch import SequenceBatch
from rlvr.models.lora import adapter_off

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Precision:
    """How a model runs: its weights' type, and the type that autocast computes in, if there is autocast."""

    weights: torch.dtype = torch.float32
    autocast: torch.dtype | None = None

    @property
    def computes(self) -> torch.dtype:
        """The type that matrices are multiplied in."""
        return self.autocast or self.weights


class Reference(Protocol):
    """The policy that the divergence is measured from: `Frozen` around an `Actor`, or `AdapterOff`."""

    def forward(self, batch: SequenceBatch, temperature: float = 1.0, with_entropy: bool = True) -> ActorOutput: ...

    def to(self, device: torch.device | str) -> "Reference": ...


class Frozen:
    """A model without gradients.

    Args:
        model: it is cast, frozen and moved to `device`; its buffers stay as precise as they are.
        precision: that of the models that learn.
        device: where it computes.
        sharded: keep a part of each weight in each process, where there are several. Forward passes are then collective.
    """

    def __init__(
        self,
        model: nn.Module,
        precision: Precision = Precision(),  # noqa: B008  it can't be changed
        device: torch.device = _CPU,
        *,
        sharded: bool = False,
    ) -> None:
        with exact_buffers(model):
            self.model = model.eval().requires_grad_(False).to(device, precision.weights)
        self.precision, self.device = precision, device
        self.sharded = sharded and dist.is_initialized() and dist.get_world_size() > 1
        if self.sharded:
            # Whatever plugin shards the models that learn: all of them compute with whole weights, and so gives this the same.
            from rlvr.boost.fsdp import shard

            shard(self.model, precision.weights, always=True)

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model."""
        short = self.precision.autocast
        with torch.autocast(self.device.type, dtype=short or torch.bfloat16, enabled=short is not None):
            return self.model(*args, **kwargs)

    def to(self, device: torch.device | str) -> "Frozen":
        """Move the model (for offloading it while others learn)."""
        self.device = torch.device(device)
        self.model.to(device)
        return self


class AdapterOff:
    """The initial model without a second copy: the actor, whose adapter is off for as long as it runs.

    Args:
        actor: with LoRA adapters.
        run: calls it, in the run's precision and by the way of its plugin.
    """

    def __init__(self, actor: Actor, run: Callable[..., ActorOutput]) -> None:
        self.actor, self.run = actor, run

    @torch.no_grad()
    def forward(self, batch: SequenceBatch, temperature: float = 1.0, with_entropy: bool = True) -> ActorOutput:
        """Logprobs and entropies under the initial model."""
        with adapter_off(self.actor.model):
            return self.run(batch, temperature, with_entropy)

    def to(self, device: torch.device | str) -> "AdapterOff":
        """Nothing to move: the weights are the actor's."""
        return self
