"""The optimizer of a role, and its learning-rate schedule: linear warm-up, then constant, linear or a cosine, in optimizer steps."""

import math
from typing import Any, get_args

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from rlvr.config.shared import LRSchedule, StepConfig


def make_optimizer(
    role: nn.Module, step: StepConfig, lr: float, total_steps: int, precision: str
) -> tuple[AdamW, LambdaLR]:
    """AdamW over the weights of a role that learn, and the schedule of its rate over this many optimizer steps.

    Args:
        role: the model.
        step: settings of an optimizer step; `lr` is not read from there, as a critic has its own.
        lr: peak rate.
        total_steps: optimizer steps of this role in the whole run.
        precision: of the run; see `adamw`.
    """
    betas = (step.adam_beta1, step.adam_beta2)
    optimizer = adamw(role, precision, lr=lr, betas=betas, eps=step.adam_eps, weight_decay=step.weight_decay)
    return optimizer, lr_schedule(optimizer, total_steps, step.warmup_steps, step.lr_schedule, step.lr_floor)


def adamw(role: nn.Module, precision: str, **options: Any) -> AdamW:
    """AdamW over the parameters that learn; `options` are torch's."""
    learned = [p for p in role.parameters() if p.requires_grad]
    # One kernel for the whole update, but for fp16, whose gradient scaler has to look at each gradient.
    return AdamW(learned, fused=precision != "fp16", **options)


def lr_schedule(
    optimizer: Optimizer,
    total_steps: int,
    warmup_steps: int | None = None,
    shape: LRSchedule = "cosine",
    floor: float = 0.1,
) -> LambdaLR:
    """Scale each parameter group's rate: 0 -> 1 over the warm-up, then as `shape` says.

    - `cosine`: along half a cosine to `floor` at the last step (Loshchilov & Hutter, "SGDR", 2017, eq. 5, for one period).
    - `linear`: along a straight line to `floor` at the last step.
    - `constant`: 1.

    Args:
        optimizer: its groups' current rates are the peaks.
        total_steps: optimizer steps of the whole run (pitfall A22: neither episodes nor micro-batches).
        warmup_steps: optimizer steps of warm-up; 2.5 % of all by default.
        shape: see above.
        floor: last rate as a share of the peak; `constant` has none.

    Raises:
        ValueError: an unknown shape.
    """
    if shape not in get_args(LRSchedule):
        raise ValueError(f"unknown shape {shape!r} of a schedule; there are: {', '.join(get_args(LRSchedule))}")
    total = max(1, total_steps)
    warmup = math.ceil(0.025 * total) if warmup_steps is None else warmup_steps

    def scale(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        if shape == "constant":
            return 1.0
        share = min(1.0, (step - warmup) / max(1, total - warmup))
        if shape == "linear":
            return floor + (1 - floor) * (1 - share)
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))

    return LambdaLR(optimizer, scale)


def resume_lr(schedule: LRScheduler) -> None:
    """Set the optimizer's rates to what the schedule says of its present step: the saved ones, unless the run was made longer."""
    if isinstance(schedule, LambdaLR):
        for group, peak, scale in zip(
            schedule.optimizer.param_groups, schedule.base_lrs, schedule.lr_lambdas, strict=True
        ):
            group["lr"] = peak * scale(schedule.last_epoch)
