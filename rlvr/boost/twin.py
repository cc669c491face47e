"""`Twin`: the modules of a model whose weights are sharded, without the plugin and, most of the time, without weights.

Generation ends at another length in each process, so it can't be made of forward passes that all processes join. Saving
wants a plain model in one process. Both get the twin, filled with whole weights for as long as they need them.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn


class Twin:
    """A copy of the modules whose parameters hold nothing and whose buffers are the same tensors.

    Args:
        module: with all of its weights, before a plugin has changed it.
    """

    def __init__(self, module: nn.Module) -> None:
        memo: dict[int, Any] = {id(buffer): buffer for buffer in module.buffers()}
        memo |= {id(p): nn.Parameter(p.detach().to("meta"), requires_grad=False) for p in module.parameters()}
        self.module = deepcopy(module, memo)
        # Tied weights are one parameter in several places.
        names = {id(p): name for name, p in self.module.named_parameters()}
        self._places = [
            (owner, key, names[id(p)])
            for owner in self.module.modules()
            for key, p in owner._parameters.items()
            if p is not None
        ]
        self._shapes = {name: p.shape for name, p in self.module.named_parameters()}
        self._depth = 0

    def shape(self, name: str) -> torch.Size:
        """Size of a parameter."""
        return self._shapes[name]

    @property
    def in_use(self) -> bool:
        """Whether it holds weights."""
        return self._depth > 0

    @contextmanager
    def filled(self, weights: Iterable[tuple[str, Tensor]], original: nn.Module) -> Iterator[nn.Module]:
        """The module, with these weights and with the settings that `original` has now. Weights are read if it is not
        filled already."""
        if self._depth == 0:
            self._take_over(original)
            self._set({name: nn.Parameter(tensor, requires_grad=False) for name, tensor in weights})
        self._depth += 1
        try:
            yield self.module
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._set(
                    {
                        name: nn.Parameter(p.to("meta"), requires_grad=False)
                        for name, p in self.module.named_parameters()
                    }
                )

    def _set(self, parameters: dict[str, nn.Parameter]) -> None:
        for owner, key, name in self._places:
            owner._parameters[key] = parameters[name]

    def _take_over(self, original: nn.Module) -> None:
        """Numbers and statistics that trainers have set on the module; torch's own attributes begin with an underscore."""
        for name, value in vars(original).items():
            if not name.startswith("_") and not isinstance(value, nn.Module | Tensor):
                setattr(self.module, name, value)
        for own, buffer in zip(self.module.buffers(), original.buffers(), strict=True):
            own.data = buffer.data
