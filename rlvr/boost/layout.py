"""`Layout`: which process holds which part of a role's weights, gradients and optimizer state under its plugin.

`Layout` itself is the plain case, in which every process holds everything (DDP); a plugin that shards has a subclass:
`ShardedLayout` where no process holds all weights, which fills a `MetaCopy` of the model when they are wanted whole.
`Boosted` asks its layout and knows no plugin by name.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlvr.boost.process import Replica, any_rank, group_device, replica_of

if TYPE_CHECKING:
    from colossalai.booster import Booster

LARGEST_NORM = 1e18
"""A gradient that is longer counts as one that is not finite: the sum of its squares over processes might not fit into float32."""


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
    def dtype(self) -> torch.dtype:
        """Type of the weights in forward passes."""
        return next(self.unwrapped.parameters()).dtype

    @property
    def replica(self) -> Replica:
        """The processes that learn one copy of the model together: each by itself, unless the model is cut up."""
        return replica_of()

    @property
    def reports(self) -> bool:
        """True in the one process of a replica that counts its losses."""
        return True

    @property
    def can_skip_sync(self) -> bool:
        """True if gradients can be accumulated without synchronising ranks."""
        return self.booster.plugin.support_no_sync()

    def accumulate(self, losses: Sequence[Any], each: Callable[[Sequence[Any]], None]) -> None:
        """Form the losses and accumulate their gradients: `each` does it one after the other. Collective."""
        each(losses)

    @contextmanager
    def scoring(self, forward: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
        """A function for forward passes over this process's own samples; `forward` where processes needn't have the same.
        Collective."""
        yield forward

    def update(self, limit: float, loss: float = 0.0) -> float:
        """Clip the gradients to a norm of `limit` (infinity = not at all), step, and let go of them. Returns the norm before
        clipping. Collective.

        Where a gradient, or the loss, is not finite in any process, no process steps: no weight, moment or step count changes, and
        the norm returned is infinite. (A NaN reward gives a loss of NaN, and gradients of 0.)
        """
        norm = local_norm(self.gradients())
        finite = not any_rank(not (norm < LARGEST_NORM and math.isfinite(loss)), group_device())
        # fp16's own optimizers do not step either, and then want to lower the scale of the loss.
        stepped = self.step(limit, norm) if finite or self.scales_loss else norm
        self.discard()
        return stepped if finite else float("inf")

    def gradients(self) -> Iterable[Tensor]:
        """This process's gradients, or its shards of them."""
        return [p.grad for p in self.unwrapped.parameters() if p.grad is not None]

    def step(self, limit: float, norm: float) -> float:
        """Clip the gradients to a norm of `limit`, and step. Returns the norm before clipping. Collective.

        Args:
            norm: of `gradients`.
        """
        found = self.optimizer.clip_grad_by_norm(limit)
        scale = self.optimizer.scaler.get_scale() if found is None else 1.0  # fp16's gives none
        self.optimizer.step()
        return norm / scale if found is None else float(found)

    def forget_moments(self) -> None:
        """Let the optimizer begin anew: no moments, no steps counted. Learning rates stay."""
        optimizer = self.optimizer
        while hasattr(optimizer, "optim"):  # inside the Booster's wrappers
            optimizer = optimizer.optim
        optimizer.state.clear()

    def discard(self) -> None:
        """Let go of the gradients: between steps they take no memory."""
        self.optimizer.zero_grad()

    @property
    def scales_loss(self) -> bool:
        """True in fp16, where the optimizer scales the loss, and watches for overflows itself."""
        names = ("mixed_precision_mixin", "mix_precision_mixin", "mixed_precision")
        kinds = [getattr(getattr(self.optimizer, name, None), "dtype", None) for name in names]
        return torch.float16 in kinds or hasattr(self.optimizer, "scaler")

    @contextmanager
    def full_weights(self) -> Iterator[nn.Module]:
        """The module with the whole weights, in every process, to be run by each without the others. Collective."""
        yield self.unwrapped

    @contextmanager
    def full_precision_weights(self) -> Iterator[nn.Module]:
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


@contextmanager
def exact_buffers(module: nn.Module) -> Iterator[None]:
    """Within the block the module may be cast; its buffers are then as precise again as they were.

    Rotary frequencies are buffers. Rounded to bf16 they turn a token at place 1000 by up to two radians too far or too
    little (by half of 2^-8 of an angle, whatever the angle), and what is saved would be rotated otherwise than what was trained.
    """
    kept = {name: buffer.detach() for name, buffer in module.named_buffers() if buffer.is_floating_point()}
    yield
    for name, buffer in module.named_buffers():
        if name in kept and kept[name].shape == buffer.shape:
            buffer.data = kept[name].to(buffer.device)


def local_norm(gradients: Iterable[Tensor]) -> float:
    """2-norm of this process's gradients, at least in float32; not finite if one of them is not."""
    norms = [torch.linalg.vector_norm(g, dtype=torch.promote_types(g.dtype, torch.float32)) for g in gradients]
    return float(torch.stack([norm.to(norms[0].device) for norm in norms]).norm()) if norms else 0.0


class MetaCopy:
    """A copy of the modules whose parameters are on torch's meta device, without storage, and whose buffers are the same
    tensors. It can be filled with weights for a while.

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
        """True while it holds weights."""
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


class ShardedLayout(Layout):
    """No process holds all weights. Whoever wants them whole gets a `MetaCopy`: the same modules without the plugin, filled with
    weights for as long as they are wanted.

    Args:
        booster, model, optimizer: see `Layout`.
        meta_copy: made of the module before the plugin took its weights apart.
    """

    def __init__(self, booster: "Booster", model: Any, optimizer: Any, meta_copy: MetaCopy) -> None:
        super().__init__(booster, model, optimizer)
        self.meta_copy = meta_copy

    def gather(self, exact: bool) -> Iterator[tuple[str, Tensor]]:
        """Name and whole tensor of each parameter, one after the other, on the device; in the run's precision, or as
        precise as they are. Collective."""
        raise NotImplementedError

    def scatter(self, weights: dict[str, Tensor]) -> None:
        """Take over whole tensors for some or all of the parameters. Collective."""
        raise NotImplementedError

    @property
    def original(self) -> Any:
        """The module whose settings and buffers the copy takes over."""
        return self.unwrapped

    @contextmanager
    def full_weights(self) -> Iterator[nn.Module]:
        with self.meta_copy.filled(self.gather(exact=False), self.original) as module:
            yield module

    @contextmanager
    def full_precision_weights(self) -> Iterator[nn.Module]:
        assert not self.meta_copy.in_use, "weights that are whole for generation are not exact"
        rank = dist.get_rank()
        kept = ((name, tensor.cpu() if rank == 0 else tensor.to("meta")) for name, tensor in self.gather(exact=True))
        with self.meta_copy.filled(kept, self.original) as module:
            yield module

    def shapes(self) -> dict[str, torch.Size]:
        return {name: tensor.shape for name, tensor in self.meta_copy.module.state_dict().items()}

    def change(self, change: Callable[[Any], None]) -> None:
        assert not self.meta_copy.in_use, "weights that are whole for generation are not exact"
        cpu = ((name, tensor.cpu()) for name, tensor in self.gather(exact=True))
        with self.meta_copy.filled(cpu, self.original) as module:
            change(module)
            self.scatter(dict(module.named_parameters()))

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        self.scatter({name: weights[name] for name, _ in self.meta_copy.module.named_parameters()})
