"""What one optimizer step of PPO depends on."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PPOSettings:
    """See the fields of the same names in `rlvr.config`.

    Attributes:
        constant_tokens: divisor of the `constant` loss reduction: the length limit of responses.
    """

    temperature: float = 1.0
    eps_clip: float = 0.2
    eps_clip_high: float | None = None
    dual_clip: float | None = None
    value_clip: float | None = 0.2
    vf_coef: float = 1.0
    ptx_coef: float = 0.0
    entropy_coef: float = 0.0
    kl_coef: float = 0.1
    kl_in: Literal["reward", "loss"] = "reward"
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    loss_reduction: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    constant_tokens: int = 1
    pad_id: int = 0
    pin_memory: bool = False
