"""Recipes from papers as plain settings: `--preset NAME`. A setting that you give yourself always wins.

Each recipe says which estimator, clip, divergence, loss and group size its paper uses, and learning rates where the paper
names them. Batch sizes are for one machine (the papers' are thousands of responses); `docs/presets.md` lists each paper's, and
what `for_tiny` changes for the built-in model, which is a million times smaller than theirs, has sizes and learning rates of its
own (`config.TINY_SETTINGS`), and answers in 10 to 30 tokens.

A recipe is never a branch in the trainer: all of it is settings that can be given one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewards.errors import UserError
from rlvr.errors import did_you_mean

Settings = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class Preset:
    """A recipe.

    Attributes:
        paper: its source.
        settings: section -> name -> value, as in `rlvr.config.Config`.
        for_tiny: settings that the built-in model needs instead.
    """

    paper: str
    settings: Settings
    for_tiny: Settings = field(default_factory=dict)


def _batch(num_generations: int, prompts: int) -> dict[str, int]:
    return {"num_generations": num_generations, "experience_batch_size": num_generations * prompts}


_ONE_PASS = {"num_update_steps": 1}
_SMALL_RATE = {"lr": 1e-6}

PRESETS: dict[str, Preset] = {
    "ppo": Preset(
        "Schulman et al. 2017, arXiv:1707.06347; as Ouyang et al. 2022 (InstructGPT), arXiv:2203.02155, use it",
        {
            "algo": {
                "estimator": "gae", "gamma": 1.0, "lam": 0.95, "eps_clip": 0.2, "value_clip": 0.2,
                "kl_coef": 0.02, "kl_estimator": "k1", "kl_in": "reward", "loss_reduction": "token_mean",
            },
            "train": {**_ONE_PASS, "lr": 9e-6, "critic_lr": 9e-6},
        },
    ),
    "orz": Preset(
        "Open-Reasoner-Zero, Hu et al. 2025, arXiv:2503.24290",
        {
            "algo": {"estimator": "gae", "gamma": 1.0, "lam": 1.0, "eps_clip": 0.2, "kl_coef": 0.0},
            "rollout": _batch(64, 2),
            "train": {**_ONE_PASS, **_SMALL_RATE, "critic_lr": 5e-6},
        },
        for_tiny={"rollout": {"num_generations": 1}},
    ),
    "vapo": Preset(
        "VAPO, Yue et al. 2025, arXiv:2504.05118",
        {
            "algo": {
                "estimator": "gae", "gamma": 1.0, "critic_lam": 1.0, "lam_alpha": 0.05, "kl_coef": 0.0,
                "eps_clip": 0.2, "eps_clip_high": 0.28, "loss_reduction": "token_mean", "positive_lm_coef": 0.1,
                "value_pretraining_episodes": 50,
            },
            "rollout": _batch(16, 8),
            "train": {**_ONE_PASS, **_SMALL_RATE, "critic_lr": 2e-6},
        },
        # 1 - 1 / (0.05 x 25 tokens) is 0.2: made for thousands of tokens.
        for_tiny={
            "algo": {"lam_alpha": 1.0, "value_pretraining_episodes": 2},
            "rollout": {"num_generations": 1},
        },
    ),
    "grpo": Preset(
        "GRPO, DeepSeekMath, Shao et al. 2024, arXiv:2402.03300",
        {
            "algo": {
                "estimator": "grpo", "eps_clip": 0.2, "kl_coef": 0.04, "kl_estimator": "k3", "kl_in": "loss",
                "loss_reduction": "sequence_mean",
            },
            "rollout": _batch(64, 2),
            "train": {**_ONE_PASS, **_SMALL_RATE},
        },
        for_tiny={"rollout": {"num_generations": 8}},
    ),
    "drgrpo": Preset(
        "Dr. GRPO, Liu et al. 2025, arXiv:2503.20783",
        {
            "algo": {"estimator": "dr_grpo", "eps_clip": 0.2, "kl_coef": 0.0, "loss_reduction": "constant"},
            "rollout": _batch(8, 16),
            "train": {**_ONE_PASS, **_SMALL_RATE},
        },
    ),
    "dapo": Preset(
        "DAPO, Yu et al. 2025, arXiv:2503.14476",
        {
            "algo": {
                "estimator": "grpo", "eps_clip": 0.2, "eps_clip_high": 0.28, "kl_coef": 0.0,
                "loss_reduction": "token_mean", "dynamic_sampling": True, "truncated": "mask",
            },
            "rollout": _batch(16, 8),
            "train": {**_ONE_PASS, **_SMALL_RATE},
        },
        for_tiny={"rollout": {"num_generations": 8}},
    ),
    "rloo": Preset(
        "RLOO, Ahmadian et al. 2024, arXiv:2402.14740",
        {
            "algo": {
                "estimator": "rloo", "eps_clip": 0.2, "kl_coef": 0.03, "kl_estimator": "k1", "kl_in": "reward",
                "loss_reduction": "constant",
            },
            "rollout": _batch(4, 32),
            "train": {**_ONE_PASS, **_SMALL_RATE},
        },
    ),
    "reinforce_pp": Preset(
        "REINFORCE++, Hu et al. 2025, arXiv:2501.03262",
        {
            "algo": {
                "estimator": "reinforce_pp", "gamma": 1.0, "eps_clip": 0.2, "kl_coef": 0.001, "kl_estimator": "k1",
                "kl_in": "reward", "loss_reduction": "token_mean", "whiten_advantages": True,
            },
            "rollout": _batch(1, 128),
            "train": {**_ONE_PASS, "lr": 5e-7},
        },
    ),
    "gspo": Preset(
        "GSPO, Zheng et al. 2025, arXiv:2507.18071",
        {
            "algo": {
                "estimator": "grpo", "ratio": "sequence", "eps_clip": 3e-4, "eps_clip_high": 4e-4, "kl_coef": 0.0,
                "loss_reduction": "sequence_mean",
            },
            "rollout": _batch(8, 8),
            "train": {**_ONE_PASS, **_SMALL_RATE, "accumulation_steps": 2},
        },
        for_tiny={"train": {"accumulation_steps": 1}},
    ),
}  # fmt: skip


def find_preset(name: str) -> Preset:
    """The recipe of this name.

    Raises:
        UserError: there is none; the message lists those that there are.
    """
    if name not in PRESETS:
        raise UserError(
            f"--preset {name}: there is none; there are: {', '.join(PRESETS)}.{did_you_mean(name, PRESETS)}"
        )
    return PRESETS[name]
