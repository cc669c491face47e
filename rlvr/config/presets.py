"""Recipes from papers as plain settings: `--preset NAME`. A setting that you give yourself always wins.

Each recipe says which estimator, clip, divergence, loss and group size its paper uses, and how it steps: optimizer steps for
each exploration, schedule, and what the paper says of learning rates and Adam. Beside each line stands where the paper says so, or
that it doesn't. How many prompts an exploration has is for one machine (the papers' have thousands of responses): an optimizer step
takes whole groups, in as many steps as the paper's or fewer. `docs/presets.md` lists each paper's, and what small models change,
which bring sizes and learning rates of their own (`rlvr.config.models`, then `for_small`): the built-in one is a million times smaller
than theirs, and answers in 10 to 30 tokens.

A recipe is never a branch in the trainer: all of it is settings that can be given one by one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rewards.errors import UserError
from rlvr.errors import did_you_mean

Settings = Mapping[str, Mapping[str, Any]]
SAMPLES_IN_A_PASS = 16
_OWN_WARMUP = {"train": {"warmup_steps": None}}  # the default share of a run of some 160 optimizer steps


@dataclass(frozen=True)
class Preset:
    """A recipe.

    Attributes:
        paper: its source.
        num_generations: responses to a prompt.
        prompts: prompts of an exploration.
        updates: optimizer steps on the responses of an exploration, each of whole groups. They are learned from once.
        algo, train: its settings of these sections.
        for_small: settings that models need instead that bring sizes and learning rates of their own.
    """

    paper: str
    num_generations: int
    prompts: int
    updates: int
    algo: Mapping[str, Any]
    train: Mapping[str, Any]
    for_small: Settings = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """Section -> name -> value, as in `rlvr.config.Config`."""
        responses = self.num_generations * self.prompts
        steps = {
            "num_collect_steps": 1,
            "num_update_steps": 1,
            "train_batch_size": SAMPLES_IN_A_PASS,
            "accumulation_steps": responses // (SAMPLES_IN_A_PASS * self.updates),
        }
        rollout = {"num_generations": self.num_generations, "experience_batch_size": responses}
        return {"algo": self.algo, "rollout": rollout, "train": {**steps, **self.train}}


PRESETS: dict[str, Preset] = {
    "ppo": Preset(
        "Schulman et al. 2017, arXiv:1707.06347; as Ouyang et al. 2022 (InstructGPT), arXiv:2203.02155, use it",
        num_generations=1,  # InstructGPT, app. C.4: one response to each of 512 prompts
        prompts=128,
        updates=8,  # app. C.4: mini-batches of 64, one inner epoch
        algo={
            "estimator": "gae",  # 1707.06347, eq. 11
            "gamma": 1.0,  # app. C.4: no discount
            "lam": 0.95,  # 1707.06347, table 3; Stiennon et al. 2020, arXiv:2009.01325, app. B.1
            "eps_clip": 0.2,  # app. C.4
            "value_clip": 0.2,  # not in these papers; Huang et al. 2024, arXiv:2403.17031, who reproduce them
            "kl_coef": 0.02, "kl_estimator": "k1", "kl_in": "reward",  # app. C.4; eq. 2
            "loss_reduction": "token_mean",  # 1707.06347, eq. 7: over time steps
        },
        train={
            "lr": 9e-6, "critic_lr": 9e-6,  # app. C.4: the critic's of 1.3B and 6B; the policy's is chosen by a sweep
            "lr_schedule": "constant", "warmup_steps": 80,  # app. C.4: warmed up over the first 10 iterations
            "adam_beta1": 0.9, "adam_beta2": 0.95,  # app. C
        },
        for_small=_OWN_WARMUP,
    ),
    "orz": Preset(
        "Open-Reasoner-Zero, Hu et al. 2025, arXiv:2503.24290",
        num_generations=64,  # training details: 64 responses to each of 128 prompts
        prompts=2,
        updates=1,  # training details: one step of the policy
        algo={
            "estimator": "gae", "gamma": 1.0, "lam": 1.0,  # sec. 2: both are 1
            "eps_clip": 0.2,  # sec. 2
            "value_clip": None,  # none is named
            "kl_coef": 0.0,  # sec. 2: neither in the reward nor in the loss
        },
        train={
            "critic_steps": 12,  # training details: of the critic, in each of the policy's
            "lr": 1e-6, "critic_lr": 5e-6, "lr_schedule": "constant", "warmup_steps": 50,  # training details
            "adam_beta1": 0.9, "adam_beta2": 0.95, "weight_decay": 0.0,  # training details
        },
        # 4 of the critic's steps of 16 in each of 64: 12 would have 5 responses each.
        for_small={"rollout": {"num_generations": 1}, "train": {**_OWN_WARMUP["train"], "critic_steps": 4}},
    ),
    "vapo": Preset(
        "VAPO, Yue et al. 2025, arXiv:2504.05118",
        num_generations=16,  # sec. 5.1: 16 responses to each of 512 prompts
        prompts=16,
        updates=4,  # sec. 5.1: steps of 512 responses, 16 on 8,192
        algo={
            "estimator": "gae", "gamma": 1.0,  # sec. 5.1
            "critic_lam": 1.0, "lam_alpha": 0.05,  # sec. 4.1, 4.2 and 5.1: decoupled, adaptive to the length
            "kl_coef": 0.0,  # no divergence is named
            "eps_clip": 0.2, "eps_clip_high": 0.28,  # sec. 4.3 and 5.1
            "value_clip": None,  # none is named
            "loss_reduction": "token_mean",  # sec. 4.2, eq. 8
            "positive_lm_coef": 0.1,  # sec. 4.3 and 5.1
            "value_pretraining_episodes": 50,  # sec. 5.1: 50 steps of the critic alone
        },
        train={"lr": 1e-6, "critic_lr": 2e-6, "lr_schedule": "constant"},  # sec. 5.1: constant after a warm-up
        # 1 - 1 / (0.05 x 25 tokens) is 0.2: made for thousands of tokens.
        for_small={
            "algo": {"lam_alpha": 1.0, "value_pretraining_episodes": 2},
            "rollout": {"num_generations": 1},
        },
    ),
    "grpo": Preset(
        "GRPO, DeepSeekMath, Shao et al. 2024, arXiv:2402.03300",
        num_generations=64,  # sec. 4.2: 64 responses to a question, 1,024 in an exploration
        prompts=4,
        updates=1,  # sec. 4.2: a single update after each exploration
        algo={
            "estimator": "grpo",  # sec. 4.1.2
            "eps_clip": 0.2,  # no number is named; that of 1707.06347
            "kl_coef": 0.04, "kl_estimator": "k3", "kl_in": "loss",  # sec. 4.2; eq. 4; eq. 3
            "loss_reduction": "sequence_mean",  # eq. 3
        },
        train={"lr": 1e-6},  # sec. 4.2
        for_small={"rollout": {"num_generations": 8}},
    ),
    "drgrpo": Preset(
        "Dr. GRPO, Liu et al. 2025, arXiv:2503.20783",
        num_generations=8,  # app. on experiments: 8 responses to each of 128 questions
        prompts=32,
        updates=2,  # the published command: steps of 128 responses, 8 on 1,024
        algo={
            "estimator": "dr_grpo",  # sec. 3.2
            "eps_clip": 0.2,  # table of hyper-parameters
            "kl_coef": 0.0,  # sec. 3; table of hyper-parameters
            "loss_reduction": "constant",  # sec. 3.2
        },
        train={
            "lr": 1e-6, "lr_schedule": "constant",  # table of hyper-parameters
            "adam_beta1": 0.9, "adam_beta2": 0.95, "weight_decay": 0.0, "grad_clip": 1.0,  # the same table
        },
    ),
    "dapo": Preset(
        "DAPO, Yu et al. 2025, arXiv:2503.14476",
        num_generations=16,  # sec. 4.1: 16 responses to each of 512 prompts
        prompts=16,
        updates=4,  # sec. 4.1: steps of 512 responses, 16 on 8,192
        algo={
            "estimator": "grpo",  # eq. 9
            "eps_clip": 0.2, "eps_clip_high": 0.28,  # sec. 3.1 and 4.1
            "kl_coef": 0.0,  # sec. 2.3
            "loss_reduction": "token_mean",  # sec. 3.3
            "dynamic_sampling": True,  # sec. 3.2
            "truncated": "mask",  # sec. 3.4: overlong filtering
        },
        train={
            "lr": 1e-6, "lr_schedule": "constant",  # sec. 4.1
            "warmup_steps": 80,  # sec. 4.1: over 20 explorations
        },
        for_small={"rollout": {"num_generations": 8}, **_OWN_WARMUP},
    ),
    "rloo": Preset(
        "RLOO, Ahmadian et al. 2024, arXiv:2402.14740",
        num_generations=4,  # sec. 4: k = 2 and 4
        prompts=32,
        updates=2,  # app. C: steps of 256 responses, 2 on 512
        algo={
            "estimator": "rloo",  # eq. 6
            "eps_clip": 0.2,  # none there; it does nothing in the first of the two steps
            "kl_coef": 0.03, "kl_estimator": "k1", "kl_in": "reward",  # app. C; eq. 3
            "loss_reduction": "constant",  # sec. 3.1: a response is one action
        },
        train={"lr": 1e-6},  # app. C; the warm-up of 3 % of the steps is near the default
    ),
    "reinforce_pp": Preset(
        "REINFORCE++, Hu et al. 2025, arXiv:2501.03262",
        num_generations=1,  # sec. 3: without a group to compare with
        prompts=128,
        updates=2,  # table of hyper-parameters: steps of 128 on 256
        algo={
            "estimator": "reinforce_pp", "gamma": 1.0,  # sec. 3; table of hyper-parameters
            "eps_clip": 0.2,  # table of hyper-parameters
            "kl_coef": 0.001, "kl_estimator": "k1", "kl_in": "reward",  # the same, for mathematics; sec. 3
            "loss_reduction": "token_mean",  # sec. 3: over tokens
            "whiten_advantages": True,  # sec. 3
        },
        train={"lr": 5e-7},  # table of hyper-parameters
    ),
    "gspo": Preset(
        "GSPO, Zheng et al. 2025, arXiv:2507.18071",
        num_generations=8,  # not named
        prompts=16,
        updates=4,  # sec. 5.1: four mini-batches
        algo={
            "estimator": "grpo",  # eq. 6
            "ratio": "sequence",  # eq. 7
            "eps_clip": 3e-4, "eps_clip_high": 4e-4,  # sec. 5.1
            "kl_coef": 0.0,  # left out of the objective, eq. 5
            "loss_reduction": "sequence_mean",  # eq. 5
        },
        train={"lr": 1e-6},  # not named
    ),
    "cispo": Preset(
        "CISPO, MiniMax-M1, Chen et al. 2025, arXiv:2506.13585",
        num_generations=16,  # not named; that of DAPO, with which it is compared
        prompts=16,
        updates=4,  # sec. 3.1: 16 rounds of updates
        algo={
            "estimator": "grpo",  # eq. 2 and 4
            "policy_loss": "cispo",  # eq. 4 and 5
            "eps_clip": 1.0,  # sec. 3.1: no lower bound
            "eps_clip_high": 4.0,  # not named; weights up to 5 in Khatri et al. 2025, arXiv:2510.13786
            "kl_coef": 0.0,  # sec. 3.1: no divergence
            "loss_reduction": "token_mean",  # eq. 4
            "dynamic_sampling": True,  # sec. 3.1
        },
        train={
            "lr": 1e-6,  # not named
            "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-15,  # sec. 3.2: gradients may be below 1e-14
        },
        for_small={"rollout": {"num_generations": 8}},
    ),
    "sapo": Preset(
        "SAPO, Gao et al. 2025, arXiv:2511.20347",
        num_generations=8,  # not named
        prompts=16,
        updates=4,  # sec. 5.1: four mini-batches
        algo={
            "estimator": "grpo",  # eq. 5
            "policy_loss": "sapo", "tau_pos": 1.0, "tau_neg": 1.05,  # eq. 5 and 6; sec. 5.1
            "kl_coef": 0.0,  # left out of the objective, eq. 5
            "loss_reduction": "sequence_mean",  # eq. 5
        },
        train={"lr": 1e-6},  # not named
    ),
    "top_entropy": Preset(
        "Beyond the 80/20 Rule, Wang et al. 2025, arXiv:2506.01939",
        num_generations=16,  # not named; that of DAPO, which it changes
        prompts=16,
        updates=4,  # experiments: 16 on a batch
        algo={
            "estimator": "grpo", "eps_clip": 0.2, "eps_clip_high": 0.28,  # DAPO's
            "kl_coef": 0.0, "loss_reduction": "token_mean", "dynamic_sampling": True,  # DAPO's
            "entropy_control": "top_entropy", "entropy_share": 0.2,  # eq. 5; experiments: 20 %
        },
        train={"lr": 1e-6, "lr_schedule": "constant", "warmup_steps": 0},  # experiments: no warm-up, no schedule
        for_small={"rollout": {"num_generations": 8}, **_OWN_WARMUP},
    ),
    "clip_cov": Preset(
        "Clip-Cov, The Entropy Mechanism, Cui et al. 2025, arXiv:2505.22617",
        num_generations=8,  # experiments: 8 responses to each of 256 prompts
        prompts=32,
        updates=8,  # experiments: 8 updates
        algo={
            "estimator": "grpo", "eps_clip": 0.2,  # sec. 4.2: a change of GRPO
            "kl_coef": 0.0,  # the published command
            "loss_reduction": "token_mean",  # the published command
            "dynamic_sampling": True,  # experiments: prompts without signal are left out
            "entropy_control": "clip_cov", "entropy_share": 2e-4, "clip_cov_low": 1.0, "clip_cov_high": 5.0,  # experiments
        },
        train={"lr": 1e-6},  # not named
    ),
    "kl_cov": Preset(
        "KL-Cov, The Entropy Mechanism, Cui et al. 2025, arXiv:2505.22617",
        num_generations=8,  # as clip_cov
        prompts=32,
        updates=8,  # as clip_cov
        algo={
            "estimator": "grpo", "eps_clip": math.inf,  # sec. 4.2: the ratio is not clipped
            "kl_coef": 0.0, "loss_reduction": "token_mean", "dynamic_sampling": True,  # as clip_cov
            "entropy_control": "kl_cov", "entropy_share": 2e-3, "kl_cov_coef": 1.0,  # experiments, of the 7B model
        },
        train={"lr": 1e-6},  # not named
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
