"""`Config`: every setting of a training run by PPO and its relatives, with the layers of defaults beneath the user's own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlvr.config.ray import RayConfig
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
from rlvr.config.tree import build, forbid_unknown, merge, overlay
from rlvr.presets import find_preset


@forbid_unknown
@dataclass
class Config:
    """All settings of a run."""

    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    template: TemplateConfig = field(default_factory=TemplateConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    env: EnvConfig = field(default_factory=EnvConfig)
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    ckpt: CheckpointConfig = field(default_factory=CheckpointConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    log: LogConfig = field(default_factory=LogConfig)


# Settings that the built-in model learns best with; found by trial on 2 CPU cores.
TINY_SETTINGS: dict[str, dict[str, Any]] = {
    "rollout": {"experience_batch_size": 256, "max_new_tokens": 64, "max_length": 160},
    "algo": {"kl_coef": 0.001, "lam": 1.0},
    "train": {
        "num_episodes": 40,
        "num_collect_steps": 1,
        "num_update_steps": 1,
        "train_batch_size": 64,
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
}


def from_dict(tree: Mapping[str, Any]) -> Config:
    """Build a `Config` from nested dictionaries; what is absent keeps its default, what is unknown is an error."""
    return build(Config, tree)


def base_config(given: Mapping[str, Mapping[str, Any]] | None = None) -> Config:
    """The defaults with `given` laid over them. In between come the preset that it names, and the built-in model's own
    settings when it is used: over its sizes and rates a preset only lays what it says for that model.

    Raises:
        UserError: an unknown preset, section or field, or a value of the wrong type.
    """
    given = given or {}
    config = merge(Config(), given)
    layers = beneath(config.algo.preset, config.model.pretrain == "tiny")
    return merge(Config(), overlay(*layers, given))


def beneath(preset: str | None, tiny: bool) -> list[Mapping[str, Mapping[str, Any]]]:
    """The layers of settings between the defaults and the user's own, lowest first."""
    return [layer for _, layer in labelled_layers(preset, tiny)]


TINY_LABEL = "built-in model"


def labelled_layers(preset: str | None, tiny: bool) -> list[tuple[str, Mapping[str, Mapping[str, Any]]]]:
    """`beneath`, each layer with its name: `preset NAME` or `tiny`."""
    recipe = find_preset(preset) if preset else None
    label = f"preset {preset}"
    if not tiny:
        return [(label, recipe.settings)] if recipe else []
    if recipe is None:
        return [(TINY_LABEL, TINY_SETTINGS)]
    # The recipe's mathematics wins over the built-in model's; sizes and learning rates are the model's affair.
    sizes = {section: values for section, values in TINY_SETTINGS.items() if section != "algo"}
    return [(TINY_LABEL, TINY_SETTINGS), (label, recipe.settings), (TINY_LABEL, sizes), (label, recipe.for_tiny)]
