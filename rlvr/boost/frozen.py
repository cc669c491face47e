"""Models that only infer: the reference, which the KL divergence is measured from, and neural reward models.

`Frozen` holds a model of its own, computed as the models that learn are: logprobs of equal weights are then equal bit for
bit, and the divergence of a policy that has not moved is 0. `AdapterOff` needs none: with LoRA the reference is the actor
without its adapter.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlvr.boost.layout import exact_buffers
from rlvr.errors import UserError
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

    def check_follows(self, shapes: Mapping[str, torch.Size], share: float) -> None:
        """Raise `UserError` unless the model can `follow` a policy of these weights by this share."""
        wrong = [name for name, p in self.model.named_parameters() if shapes.get(name) != p.shape]
        if wrong:
            raise UserError(
                f"the reference is another model than the actor, which has no such {wrong[0]}, and so can't become it: leave "
                "reference_reset_interval out, or start both from one model"
            )
        if share < 1 and self.precision.weights.itemsize < 4:
            raise UserError(
                f"reference_mix {share:g} would be lost in rounding: the reference's weights are {self.precision.weights}, as the "
                "actor's. Give --mixed_precision fp32, or --plugin ddp, whose weights stay in float32, or leave --reference_mix out"
            )

    @torch.no_grad()
    def follow(self, policy: Mapping[str, Tensor], share: float = 1.0) -> None:
        """Move the weights to (1 - share) x own + share x the policy's. At 1 they become the policy's, bit for bit.

        Args:
            policy: whole weights by name, the same in every process; what this model does not have is left out.
            share: in (0, 1].
        """
        own = dict(self.model.named_parameters())
        pairs: Iterable[tuple[Tensor, Tensor]] = ((p, policy[name]) for name, p in own.items())
        if self.sharded:
            from rlvr.boost.fsdp import own_parts

            pairs = own_parts(self.model, {name: policy[name] for name in own})
        for p, given in pairs:
            target = given.to(p.device, p.dtype)
            p.copy_(target) if share == 1 else p.lerp_(target, share)

    def weights(self) -> dict[str, Tensor]:
        """Whole weights by name in main memory, in rank 0; elsewhere none, where they are sharded. Collective."""
        if not self.sharded:
            return {name: p.detach().cpu() for name, p in self.model.named_parameters()}
        from rlvr.boost.fsdp import whole_parameters

        is_main = dist.get_rank() == 0
        return {name: whole.cpu() for name, whole in whole_parameters(self.model) if is_main}

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
