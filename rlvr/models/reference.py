"""Models that only infer: the reference, which the KL divergence is measured from, and neural reward models.

`Frozen` holds a model of its own. `AdapterOff` needs none: with LoRA the reference is the actor without its adapter.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import nn

from rlvr.models.actor import Actor, ActorOutput
from rlvr.models.batch import SequenceBatch
from rlvr.models.lora import adapter_off


class Reference(Protocol):
    """The policy that the divergence is measured from: `Frozen` around an `Actor`, or `AdapterOff`."""

    def forward(self, batch: SequenceBatch, temperature: float = 1.0, with_entropy: bool = True) -> ActorOutput: ...

    def to(self, device: torch.device | str) -> "Reference": ...


class Frozen:
    """A model without a Booster and without gradients, run in the precision of the models that learn.

    Args:
        model: its parameters are frozen and moved to `device`.
        precision: "bf16" runs forward passes under autocast.
    """

    def __init__(self, model: nn.Module, precision: str, device: torch.device) -> None:
        self.model = model.eval().requires_grad_(False).to(device)
        self.precision = precision

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model in the run's precision."""
        device = next(self.model.parameters()).device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            return self.model(*args, **kwargs)

    def to(self, device: torch.device | str) -> "Frozen":
        """Move the model (for offloading it while others learn)."""
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
