"""`Boosted`: one role's model, optimizer, schedule and Booster behind a handful of calls.

Actor, critic and every supervised trainer use it: `scoring` and `full_weights` while experience is collected, `learn` for
each mini-batch, `training_state` at checkpoints. Plugins differ in who clips and in where weights and their masters are;
the role's layout knows (`rlvr.boost.layout`).
"""

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from rlvr.boost.frozen import Frozen, Precision
from rlvr.boost.health import report_progress
from rlvr.boost.host import release_spare_memory
from rlvr.boost.layout import Layout, ShardedLayout, exact_buffers
from rlvr.boost.optimizer import resume_lr
from rlvr.boost.process import Replica, silence_libraries
from rlvr.errors import UserError

if TYPE_CHECKING:
    from colossalai.booster import Booster


def check_booster(booster: "Booster") -> None:
    """Raise `UserError` for a plugin of ColossalAI's that cuts models up and can't look inside ours."""
    from colossalai.booster.plugin import HybridParallelPlugin

    if isinstance(booster.plugin, HybridParallelPlugin) and not hasattr(booster.plugin, "make_layout"):
        raise UserError(
            "HybridParallelPlugin does not know our roles: give rlvr.boost.plugins.make_booster(ParallelConfig(plugin='3d', "
            "tp=..., pp=...), device, grad_clip), whose plugin is one that does"
        )


def layout_of(booster: "Booster", model: Any, optimizer: Any) -> Layout:
    """The layout that the Booster's plugin has given a role. Plugins of ours say so themselves."""
    from colossalai.booster.plugin import LowLevelZeroPlugin

    from rlvr.boost.zero import ZeroLayout

    if hasattr(booster.plugin, "make_layout"):
        return booster.plugin.make_layout(booster, model, optimizer)
    kind = ZeroLayout if isinstance(booster.plugin, LowLevelZeroPlugin) else Layout
    return kind(booster, model, optimizer)


@dataclass(frozen=True)
class Pass:
    """A forward pass over a micro-batch, and the share of a loss that is formed from its output. Called, it gives that share.

    Two parts, and not one function, because under pipeline parallelism the schedule makes the forward passes.

    Attributes:
        role: whose forward pass it is.
        inputs: its arguments.
        loss: from the role's output to the share.
    """

    role: "Boosted"
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Tensor]

    def __call__(self) -> Tensor:
        return self.loss(self.role.forward(*self.inputs))


class Boosted:
    """A model under a Booster, with or without an optimizer.

    Args:
        booster: ColossalAI Booster; each role has its own.
        model: an `nn.Module`, or one that this booster has already boosted.
        optimizer: its optimizer, plain or already boosted with the model; None for inference.
        lr_scheduler: steps once for each optimizer step.
        grad_clip: norm to which gradients are clipped once, after accumulation; 0 = off.
        precision: "bf16" makes forward passes under autocast where the plugin does not cast the model itself.

    Attributes:
        grad_norm: the newest gradient's norm before clipping; infinite if it was not finite.
        skipped: optimizer steps in a row, up to the newest, that were skipped because the gradient was not finite.
    """

    def __init__(
        self,
        booster: "Booster",
        model: nn.Module,
        optimizer: Optimizer | None = None,
        lr_scheduler: LRScheduler | None = None,
        *,
        grad_clip: float = 0.0,
        precision: str = "fp32",
    ) -> None:
        from colossalai.interface import ModelWrapper

        self.booster = booster
        check_booster(booster)
        if isinstance(model, ModelWrapper):
            self.model, self.optimizer, self.lr_scheduler = model, optimizer, lr_scheduler
        else:
            with silence_libraries(), exact_buffers(model):
                self.model, self.optimizer, _, _, self.lr_scheduler = booster.boost(
                    model, optimizer, lr_scheduler=lr_scheduler
                )
        self.layout = layout_of(booster, self.model, self.optimizer)
        self.grad_clip = grad_clip
        self.grad_norm = 0.0
        self.skipped = 0
        self._loss: Tensor | float = 0.0  # of the backward passes since the newest step
        self._autocast = precision == "bf16" and not booster.plugin.control_precision()

    @property
    def unwrapped(self) -> Any:
        """The module inside the plugin's wrapper. Its weights may be sharded: `full_weights` has them all."""
        return self.layout.unwrapped

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def replica(self) -> Replica:
        """The processes that learn this role together, seen from this one."""
        return self.layout.replica

    @property
    def reports(self) -> bool:
        """True in the one process of a replica that counts its losses."""
        return self.layout.reports

    @property
    def lr(self) -> float:
        """Learning rate of the next optimizer step."""
        return float(self.optimizer.param_groups[0]["lr"]) if self.optimizer is not None else 0.0

    def autocast(self) -> torch.autocast:
        """The run's precision, for work on the unwrapped model such as generation. One context for many forward passes
        casts the weights once."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self._autocast)

    @property
    def precision(self) -> Precision:
        """Types that forward passes compute with."""
        if self.booster.mixed_precision is not None:  # fp16 without a plugin's help, by autocast inside the wrapper
            return Precision(self.layout.dtype, torch.float16)
        return Precision(self.layout.dtype, torch.bfloat16 if self._autocast else None)

    def freeze(self, model: nn.Module) -> Frozen:
        """A model that only infers, computed as this role is and sharded if this role is. Collective."""
        return Frozen(model, self.precision, self.device, sharded=isinstance(self.layout, ShardedLayout))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the wrapped model (so that the plugin sees it) in the run's precision."""
        with self.autocast():
            return self.layout.forward(*args, **kwargs)

    def backward(self, loss: Tensor) -> None:
        """Accumulate the gradient of `loss`, a share of a loss that is summed over micro-batches and replicas.

        The plugins average gradients over replicas; their number undoes that, so that the sum remains.
        """
        # Not an average of averages: replicas may hold different numbers of tokens (`rlvr.core.losses.aggregate`).
        self._loss = self._loss + loss.detach()
        self.booster.backward(loss * self.replica.count, self.optimizer)

    @contextmanager
    def no_sync(self, enabled: bool = True) -> Iterator[None]:
        """Accumulate without synchronising ranks, where the plugin can (ZeRO-2 can't: it has sharded the gradients)."""
        can = enabled and self.layout.can_skip_sync
        with self.booster.no_sync(self.model, self.optimizer) if can else nullcontext():
            yield

    def step(self) -> float:
        """Clip, update, advance the schedule, clear gradients. Returns the gradient's norm before clipping. Collective.

        If the gradient is not finite in any process, the norm is infinite and the step is skipped in all of them (`skipped`
        counts such steps): weights, moments and step counts stay as they are. The schedule advances all the same: it
        spans the steps that the run will take (pitfall A22), and roles that share a run's steps stay at the same place.
        """
        loss, self._loss = float(self._loss), 0.0
        self.grad_norm = self.layout.update(self.grad_clip if self.grad_clip > 0 else float("inf"), loss)
        self.skipped = 0 if math.isfinite(self.grad_norm) else self.skipped + 1
        self._advance_schedule()
        release_spare_memory()
        return self.grad_norm

    def learn(self, losses: Sequence[Callable[[], Tensor]]) -> float:
        """One optimizer step on shares of a loss, formed one after the other. Returns what `step` does.

        With pipeline parallelism they must be `Pass`es: the schedule makes their forward passes. Where no process has a loss
        there is nothing to learn, and only the schedule advances: AdamW would move the weights by its momentum and their decay.
        """
        if not losses:
            self._advance_schedule()
            return 0.0
        self.layout.accumulate(losses, self._accumulate)
        return self.step()

    def gradient(self, losses: Sequence[Callable[[], Tensor]]) -> Tensor:
        """[weights that learn] the gradient of these shares of a loss in float32, with no step taken and none begun. Only where
        the plugin leaves gradients with the weights (ddp)."""
        assert self.optimizer is not None
        learned = [p for p in self.unwrapped.parameters() if p.requires_grad]
        if losses:
            self.layout.accumulate(losses, self._accumulate)
        parts = [torch.zeros_like(p) if p.grad is None else p.grad.detach() for p in learned]
        flat = torch.cat([part.float().flatten().cpu() for part in parts])
        self.optimizer.zero_grad()
        self._loss = 0.0
        return flat

    def _advance_schedule(self) -> None:
        if self.lr_scheduler is not None:
            with warnings.catch_warnings():
                # Meant for loops with the two calls in the wrong order; here the first step may have been skipped.
                warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step")
                self.lr_scheduler.step()

    def _accumulate(self, losses: Sequence[Callable[[], Tensor]]) -> None:
        for index, loss in enumerate(losses):
            report_progress(index, len(losses))
            # DDP decides in the forward pass whether this backward pass synchronises, so the loss is formed inside.
            with self.no_sync(index < len(losses) - 1):
                self.backward(loss())

    def to(self, device: torch.device | str) -> "Boosted":
        """Move the model (for offloading models that only infer)."""
        self.model.to(device)
        return self

    def full_weights(self) -> AbstractContextManager[Any]:
        """Within the block: the plain module with the whole weights, in the run's precision or better, which each process
        may run by itself (generation ends at another length in each). Collective to enter, unless it is open already.
        """
        return self.layout.full_weights()

    def scoring(self) -> AbstractContextManager[Callable[..., Any]]:
        """Within the block: a function like `forward`, for passes without gradients over this process's own samples.
        Collective to enter, and each pass too: all processes make the same number."""
        return self.layout.scoring(self.forward)

    def full_precision_weights(self) -> AbstractContextManager[Any]:
        """Within the block: the plain module with the whole weights as precise as they are, for rank 0 to save. Collective
        to enter."""
        return self.layout.full_precision_weights()

    def shapes(self) -> dict[str, torch.Size]:
        """Sizes of the weights and buffers that `load_weights` takes, by name."""
        return self.layout.shapes()

    def training_state(self) -> dict[str, Any]:
        """Optimizer, master weights and schedule, gathered from all ranks for rank 0: with them and the weights, training goes
        on bit for bit. Collective.

        Holds full tensors under parameter indices, so it fits any number of ranks and any data-parallel plugin.
        """
        return {
            "optimizer": self.layout.optimizer_state(),
            "masters": self.layout.masters(),
            "lr_scheduler": self.lr_scheduler.state_dict() if self.lr_scheduler is not None else {},
            "skipped": self.skipped,
        }

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Restore what `training_state` returned in rank 0. Load the model's weights first; collective."""
        self.layout.load_optimizer_state(state["optimizer"])
        if state["masters"]:
            self.layout.load_masters(state["masters"])
        if self.lr_scheduler is not None:
            self.lr_scheduler.load_state_dict(state["lr_scheduler"])
            resume_lr(self.lr_scheduler)
        self.skipped = state.get("skipped", 0)

    def load_weights(self, state_dict: dict[str, Tensor]) -> None:
        """Load the role's whole weights, also into what the plugin keeps of them; collective."""
        self.layout.load_weights(state_dict)

    def forget_moments(self) -> None:
        """Let the optimizer begin anew, without moments; the schedule goes on."""
        self.layout.forget_moments()

    def change(self, change: Callable[[Any], None]) -> None:
        """Let `change` set weights of the plain module, the same in every process; collective."""
        self.layout.change(change)
