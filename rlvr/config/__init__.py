"""Every setting of a run: one tree of dataclasses that flags, YAML and Python all build."""

from rlvr.config.flags import parse, parse_reward_training, parse_sft
from rlvr.config.flat import by_section
from rlvr.config.ray import RayConfig
from rlvr.config.run import TINY_SETTINGS, Config, base_config, beneath, from_dict
from rlvr.config.sections import (
    AlgoConfig,
    CheckpointConfig,
    DataConfig,
    EnvConfig,
    EvalConfig,
    LogConfig,
    ModelConfig,
    ParallelConfig,
    RewardConfig,
    RolloutConfig,
    TemplateConfig,
    TrainConfig,
    trains_on_builtin,
)
from rlvr.config.supervised import (
    REWARD_TINY_SETTINGS,
    SFT_TINY_SETTINGS,
    ExamplesConfig,
    PairsConfig,
    RewardTrainingConfig,
    SFTConfig,
    reward_training_config,
    sft_config,
)
from rlvr.config.tree import build, load_yaml, merge, overlay, to_dict

__all__ = [
    "REWARD_TINY_SETTINGS",
    "SFT_TINY_SETTINGS",
    "TINY_SETTINGS",
    "AlgoConfig",
    "CheckpointConfig",
    "Config",
    "DataConfig",
    "EnvConfig",
    "EvalConfig",
    "ExamplesConfig",
    "LogConfig",
    "ModelConfig",
    "PairsConfig",
    "ParallelConfig",
    "RayConfig",
    "RewardConfig",
    "RewardTrainingConfig",
    "RolloutConfig",
    "SFTConfig",
    "TemplateConfig",
    "TrainConfig",
    "base_config",
    "beneath",
    "build",
    "by_section",
    "from_dict",
    "load_yaml",
    "merge",
    "overlay",
    "parse",
    "parse_reward_training",
    "parse_sft",
    "reward_training_config",
    "sft_config",
    "to_dict",
    "trains_on_builtin",
]
