"""FSDP's layout: weights, gradients and optimizer state are sharded over all processes."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from rlvr.boost.fsdp_state import set_optimizer_state, set_parameters, whole_optimizer_state, whole_parameters
from rlvr.boost.layout import ShardedLayout


class FsdpLayout(ShardedLayout):
    """For `FsdpPlugin`. The sharded weights are as precise as they came, so there are no other masters."""

    def gather(self, exact: bool) -> Iterator[tuple[str, Tensor]]:
        return whole_parameters(self.unwrapped, None if exact else self.model.dtype)

    def scatter(self, weights: dict[str, Tensor]) -> None:
        set_parameters(self.unwrapped, weights)

    def optimizer_state(self) -> dict[str, Any]:
        return whole_optimizer_state(self.optimizer.optim)

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        set_optimizer_state(self.optimizer.optim, state)

    def load_masters(self, masters: list[Tensor]) -> None:
        names = {id(p): name for name, p in self.unwrapped.named_parameters()}
        learned = [p for group in self.optimizer.param_groups for p in group["params"]]
        with torch.no_grad():
            self.scatter({names[id(p)]: given for p, given in zip(learned, masters, strict=True)})
