"""Settings that models known by name bring by themselves, found by trial on two CPU cores. Whatever the user gives wins."""

from collections.abc import Mapping

from rlvr.config.ppo import Config
from rlvr.config.presets import Settings
from rlvr.config.supervised import RewardTrainingConfig, SFTConfig

_TINY_SUPERVISED: Settings = {
    "train": {"train_batch_size": 32, "lr": 1e-3, "weight_decay": 0.01, "num_threads": 1},
    "parallel": {"mixed_precision": "fp32"},
    "log": {"log_interval": 25},
}
SETTINGS_OF: Mapping[str, Mapping[type, Settings]] = {
    "tiny": {
        Config: {
            "rollout": {"experience_batch_size": 256, "max_new_tokens": 64, "max_length": 160},
            "algo": {"kl_coef": 0.001, "lam": 1.0},
            "train": {
                "num_episodes": 40,
                "num_collect_steps": 1,
                "num_update_steps": 1,
                "train_batch_size": 64,
                "accumulation_steps": 1,
                "lr": 3e-4,
                "critic_lr": 1e-3,
                "weight_decay": 0.0,
                # A second thread would gain little on so small a model, and lose much whenever the machine is busy.
                "num_threads": 1,
            },
            # bf16 only pays for matrices that are larger than the built-in model's.
            "parallel": {"mixed_precision": "fp32"},
            "ckpt": {"save_interval": 10},
            # Sampled, as in training: greedy decoding would show only the style that the warm start likes best.
            "eval": {"eval_interval": 10, "eval_temperature": 1.0, "eval_samples": 512},
        },
        SFTConfig: {"data": {"max_samples": 3200, "max_length": 160}, **_TINY_SUPERVISED},
        RewardTrainingConfig: {"data": {"max_samples": 12_000, "max_length": 160}, **_TINY_SUPERVISED},
    },
    "smollm2-135m": {
        Config: {
            "rollout": {"experience_batch_size": 64, "max_new_tokens": 96, "max_length": 320},
            "algo": {"kl_coef": 0.001, "lam": 1.0},
            "train": {
                "num_episodes": 60,
                "num_collect_steps": 1,
                "num_update_steps": 1,
                "train_batch_size": 16,
                # One optimizer step of all 64, and a small rate: steps of 32 at 3e-5 halved the accuracy within ten episodes.
                "accumulation_steps": 4,
                "micro_batch_tokens": 2048,
                "lr": 4e-6,
                "warmup_steps": 4,
                "weight_decay": 0.0,
            },
            "ckpt": {"save_interval": 5},
            "eval": {"eval_interval": 20, "eval_temperature": 1.0, "eval_samples": 128},
        },
        SFTConfig: {"data": {"max_length": 320}, "train": {"lr": 5e-5}},
    },
}
