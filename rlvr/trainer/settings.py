"""What learning depends on."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PPOSettings:
    """See the fields of the same names in `rlvr.config`.

    Attributes:
        kl_coef: replaced by the trainer as it adapts to `kl_target`.
        micro_batch_tokens: most tokens, padding included, in one forward and backward pass; None = no limit.
        constant_tokens: divisor of the `constant` loss reduction: the length limit of responses.
    """

    temperature: float = 1.0
    eps_clip: float = 0.2
    eps_clip_high: float | None = None
    dual_clip: float | None = None
    ratio: Literal["token", "sequence"] = "token"
    value_clip: float | None = 0.2
    vf_coef: float = 1.0
    ptx_coef: float = 0.0
    entropy_coef: float = 0.0
    positive_lm_coef: float = 0.0
    kl_coef: float = 0.1
    kl_in: Literal["reward", "loss"] = "reward"
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    kl_target: float | None = None
    kl_horizon: int = 10_000
    critic_warmup_steps: int = 0
    value_pretraining_episodes: int = 0
    loss_reduction: Literal["token_mean", "sequence_mean", "constant"] = "token_mean"
    constant_tokens: int = 1
    micro_batch_tokens: int | None = None
    pad_id: int = 0
    pin_memory: bool = False
