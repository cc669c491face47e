"""Every setting of a run: one tree of dataclasses that flags, YAML and Python all build."""

from rlvr.config.flags import parse
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
)
from rlvr.config.tree import build, load_yaml, merge, overlay, to_dict

__all__ = [
    "TINY_SETTINGS",
    "AlgoConfig",
    "CheckpointConfig",
    "Config",
    "DataConfig",
    "EnvConfig",
    "EvalConfig",
    "LogConfig",
    "ModelConfig",
    "ParallelConfig",
    "RewardConfig",
    "RolloutConfig",
    "TemplateConfig",
    "TrainConfig",
    "base_config",
    "beneath",
    "build",
    "from_dict",
    "load_yaml",
    "merge",
    "overlay",
    "parse",
    "to_dict",
]
