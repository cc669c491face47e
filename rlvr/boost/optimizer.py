"""The optimizer, and its learning-rate schedule: linear warm-up, then a cosine down to a tenth, in optimizer steps."""

import math
from typing import Any

from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR


def adamw(role: nn.Module, precision: str, **options: Any) -> AdamW:
    """AdamW over the parameters that learn; `options` are torch's."""
    learned = [p for p in role.parameters() if p.requires_grad]
    # One kernel for the whole update, but for fp16, whose gradient scaler has to look at each gradient.
    return AdamW(learned, fused=precision != "fp16", **options)


def cosine_with_warmup(
    optimizer: Optimizer, total_steps: int, warmup_steps: int | None = None, floor: float = 0.1
) -> LambdaLR:
    """Scale each parameter group's rate: 0 -> 1 over the warm-up, then along half a cosine to `floor` at the last step.

    Args:
        optimizer: its groups' current rates are the peaks.
        total_steps: optimizer steps of the whole run (pitfall A22: neither episodes nor micro-batches).
        warmup_steps: optimizer steps of warm-up; 2.5 % of all by default.
        floor: last rate as a share of the peak.

    Source: Loshchilov & Hutter, "SGDR", 2017, eq. 5, for one period.
    """
    total = max(1, total_steps)
    warmup = math.ceil(0.025 * total) if warmup_steps is None else warmup_steps

    def scale(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        share = min(1.0, (step - warmup) / max(1, total - warmup))
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))

    return LambdaLR(optimizer, scale)
