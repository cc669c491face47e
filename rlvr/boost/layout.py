"""What differs between plugins: which process holds which part of the weights, the gradients and the optimizer's state.

`Layout` is the plain case, in which every process holds everything (DDP); a plugin that shards has a subclass. `Boosted`
asks its layout and knows no plugin by name.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlvr.boost.replica import Replica, replica_of
from rlvr.boost.twin import Twin

if TYPE_CHECKING:
    from colossalai.booster import Booster


class Layout:
    """Every process holds the whole of everything.

    Args:
        booster: of the role.
        model: as the Booster has wrapped it.
        optimizer: as the Booster has wrapped it; None for inference.
    """

    def __init__(self, booster: "Booster", model: Any, optimizer: Any) -> None:
        self.booster, self.model, self.optimizer = booster, model, optimizer

    @property
    def unwrapped(self) -> Any:
        """The module inside the plugin's wrapper."""
        return self.model.unwrap() if hasattr(self.model, "unwrap") else self.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped model."""
        return self.model(*args, **kwargs)

    @property
    def replica(self) -> Replica:
        """Which processes learn one copy of the model together: each by itself, unless the model is cut up."""
        return replica_of()

    @property
    def reports(self) -> bool:
        """Whether this process counts the losses of its replica: one does."""
        return True

    @property
    def can_skip_sync(self) -> bool:
        """Whether gradients can be accumulated without synchronising ranks."""
        return self.booster.plugin.support_no_sync()

    def accumulate(self, losses: Sequence[Any], each: Callable[[Sequence[Any]], None]) -> None:
        """Form the losses and accumulate their gradients: `each` does it one after the other. Collective."""
        each(losses)

    @contextmanager
    def scoring(self, forward: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
        """A function for forward passes over this process's own samples; `forward` where processes needn't have the same.
        Collective."""
        yield forward

    def update(self, limit: float) -> float:
        """Clip the gradients to a norm of `limit` (infinity = not at all) and step. Returns the norm before clipping."""
        norm = float(self.optimizer.clip_grad_by_norm(limit))
        self.optimizer.step()
        return norm

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        """The module with the whole weights, in every process, to be run by each without the others. Collective."""
        yield self.unwrapped

    @contextmanager
    def exact(self) -> Iterator[nn.Module]:
        """The module with the whole weights as precise as they are, in rank 0, to be saved. Collective."""
        yield self.unwrapped

    def shapes(self) -> dict[str, torch.Size]:
        """Sizes of what the module's state dict holds."""
        return {name: tensor.shape for name, tensor in self.unwrapped.state_dict().items()}

    def change(self, change: Callable[[Any], None]) -> None:
        """Let `change` set weights of the plain module, the same in every process. Collective."""
        change(self.unwrapped)

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Take over a state dict with whole tensors. Collective."""
        self.unwrapped.load_state_dict(weights)

    def optimizer_state(self) -> dict[str, Any]:
        """The optimizer's state dict with whole tensors under the parameters' numbers, in rank 0 at least. Collective."""
        return self.optimizer.state_dict()

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        """Take over what any layout's `optimizer_state` returned. Collective."""
        self.optimizer.load_state_dict(state)

    def masters(self) -> list[Tensor]:
        """Whole master weights in the order of the optimizer's parameters, in rank 0 at least; empty where the weights
        themselves are as precise. Collective."""
        return []

    def load_masters(self, masters: list[Tensor]) -> None:
        """Take over what any layout's `masters` returned, which here are the weights. Collective."""
        learned = [p for group in self.optimizer.param_groups for p in group["params"]]
        with torch.no_grad():
            for own, given in zip(learned, masters, strict=True):
                own.copy_(given)


class ShardedLayout(Layout):
    """No process holds all weights. What wants them whole gets a twin: the same modules without the plugin, filled with
    weights for as long as they are wanted.

    Args:
        booster, model, optimizer: see `Layout`.
        twin: made of the module before the plugin took its weights apart.
    """

    def __init__(self, booster: "Booster", model: Any, optimizer: Any, twin: Twin) -> None:
        super().__init__(booster, model, optimizer)
        self.twin = twin

    def gather(self, exact: bool) -> Iterator[tuple[str, Tensor]]:
        """Name and whole tensor of each parameter, one after the other, on the device; in the run's precision, or as
        precise as they are. Collective."""
        raise NotImplementedError

    def scatter(self, weights: dict[str, Tensor]) -> None:
        """Take over whole tensors for some or all of the parameters. Collective."""
        raise NotImplementedError

    @property
    def original(self) -> Any:
        """Whose settings and buffers the twin takes over."""
        return self.unwrapped

    @contextmanager
    def whole(self) -> Iterator[nn.Module]:
        with self.twin.filled(self.gather(exact=False), self.original) as module:
            yield module

    @contextmanager
    def exact(self) -> Iterator[nn.Module]:
        assert not self.twin.in_use, "weights that are whole for generation are not exact"
        rank = dist.get_rank()
        kept = ((name, tensor.cpu() if rank == 0 else tensor.to("meta")) for name, tensor in self.gather(exact=True))
        with self.twin.filled(kept, self.original) as module:
            yield module

    def shapes(self) -> dict[str, torch.Size]:
        return {name: tensor.shape for name, tensor in self.twin.module.state_dict().items()}

    def change(self, change: Callable[[Any], None]) -> None:
        assert not self.twin.in_use, "weights that are whole for generation are not exact"
        cpu = ((name, tensor.cpu()) for name, tensor in self.gather(exact=True))
        with self.twin.filled(cpu, self.original) as module:
            change(module)
            self.scatter(dict(module.named_parameters()))

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        self.scatter({name: weights[name] for name, _ in self.twin.module.named_parameters()})
