"""Every setting of a run: one tree of dataclasses, which flags, YAML and Python all build."""

from rlvr.config.conditions import GENERATED, have_test_splits, is_generated, is_procedural, trains_on_generated
from rlvr.config.flags import parse, parse_reward_training, parse_sft
from rlvr.config.layers import base_config, reward_training_config, sft_config
from rlvr.config.ppo import (
    AlgoConfig,
    Config,
    DataConfig,
    EnvConfig,
    EvalConfig,
    LogConfig,
    ModelConfig,
    RayConfig,
    RewardConfig,
    RolloutConfig,
    TrainConfig,
    by_section,
    from_dict,
)
from rlvr.config.shared import CheckpointConfig, ParallelConfig, TemplateConfig
from rlvr.config.supervised import (
    ExamplesConfig,
    PairsConfig,
    RewardTrainingConfig,
    SFTConfig,
)
from rlvr.config.tree import build, load_yaml, merge, overlay, to_dict

__all__ = [
    "GENERATED",
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
    "build",
    "by_section",
    "from_dict",
    "have_test_splits",
    "is_generated",
    "is_procedural",
    "load_yaml",
    "merge",
    "overlay",
    "parse",
    "parse_reward_training",
    "parse_sft",
    "reward_training_config",
    "sft_config",
    "to_dict",
    "trains_on_generated",
]
