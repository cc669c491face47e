"""What making experience depends on."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class ExperienceSettings:
    """See the fields of the same names in `rlvr.config`.

    Attributes:
        score_batch_size: most sequences in one forward pass without gradients.
        keep_positive: whether right responses are marked, for the language-modelling loss on them.
    """

    temperature: float = 1.0
    num_generations: int = 1
    estimator: str = "gae"
    gamma: float = 1.0
    lam: float = 0.95
    critic_lam: float | None = None
    lam_alpha: float | None = None
    kl_coef: float = 0.1
    kl_estimator: Literal["k1", "k2", "k3"] = "k1"
    kl_in: Literal["reward", "loss"] = "reward"
    old_logprobs: Literal["recompute", "sampled"] = "recompute"
    tis_cap: float | None = None
    whiten_rewards: bool = False
    keep_positive: bool = False
    positive_threshold: float | None = None
    dynamic_sampling: bool = False
    max_refills: int = 8
    truncated: Literal["terminal", "bootstrap", "mask"] = "terminal"
    missing_eos_penalty: float = 0.0
    score_batch_size: int = 64
    pad_id: int = 0
    offload_reference: bool = False
