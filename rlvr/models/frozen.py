"""`Frozen`: a model that only infers: the reference model, a reward model."""

from typing import Any

import torch
from torch import nn


class Frozen:
    """No Booster, no gradients; the precision of the trained models.

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
