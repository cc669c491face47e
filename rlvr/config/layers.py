"""Layers of settings: at the bottom the tree's defaults, then those of a preset and of the built-in model, on top the user's."""

from collections.abc import Mapping
from typing import Any, TypeVar

from rlvr.config.ppo import TINY_SETTINGS, Config
from rlvr.config.presets import find_preset
from rlvr.config.supervised import REWARD_TINY_SETTINGS, SFT_TINY_SETTINGS, RewardTrainingConfig, SFTConfig
from rlvr.config.tree import merge, overlay

AnyConfig = Config | SFTConfig | RewardTrainingConfig
T = TypeVar("T", bound=AnyConfig)
Layer = Mapping[str, Mapping[str, Any]]
"""Section -> name -> value."""

OF_TINY: Mapping[type, Layer] = {
    Config: TINY_SETTINGS,
    SFTConfig: SFT_TINY_SETTINGS,
    RewardTrainingConfig: REWARD_TINY_SETTINGS,
}
"""The built-in model's own settings, for each kind of run."""
TINY_LABEL = "built-in model"


def base_config(given: Layer | None = None) -> Config:
    """The defaults with `given` laid over them. In between are the settings of the preset that it names, and the built-in model's
    own if that is used, of which a preset replaces sizes and learning rates only by values that are meant for this model.

    Raises:
        UserError: an unknown preset, section or field, or a value of the wrong type.
    """
    return layered(Config, given or {})


def sft_config(given: Layer | None = None) -> SFTConfig:
    """The defaults, the built-in model's own settings if it is used, and `given` on top.

    Raises:
        UserError: an unknown section or field, or a value of the wrong type.
    """
    return layered(SFTConfig, given or {})


def reward_training_config(given: Layer | None = None) -> RewardTrainingConfig:
    """As `sft_config`, for a reward model."""
    return layered(RewardTrainingConfig, given or {})


def layered(kind: type[T], given: Layer) -> T:
    """The settings of this kind of run, with `given` on top of its layers. Raises as `base_config`."""
    config = merge(kind(), given)
    return merge(kind(), overlay(*(layer for _, layer in layers_beneath(config)), given))


def layers_beneath(config: AnyConfig) -> list[tuple[str, Layer]]:
    """The layers of model and preset, the lowest first, each with its name: `preset NAME` or `built-in model`.

    Raises:
        UserError: an unknown preset.
    """
    preset = config.algo.preset if isinstance(config, Config) else None
    recipe, label = find_preset(preset) if preset else None, f"preset {preset}"
    if config.model.pretrain != "tiny":
        return [(label, recipe.settings)] if recipe else []
    of_tiny = OF_TINY[type(config)]
    if recipe is None:
        return [(TINY_LABEL, of_tiny)]
    # The preset decides the mathematics, the built-in model sizes and learning rates.
    sizes = {section: values for section, values in of_tiny.items() if section != "algo"}
    return [(TINY_LABEL, of_tiny), (label, recipe.settings), (TINY_LABEL, sizes), (label, recipe.for_tiny)]


def choices(config: AnyConfig) -> dict[str, dict[str, Any]]:
    """The settings among these that choose layers: the model and the preset."""
    chosen: dict[str, dict[str, Any]] = {"model": {"pretrain": config.model.pretrain}}
    return chosen | {"algo": {"preset": config.algo.preset}} if isinstance(config, Config) else chosen


def untouched(config: T) -> T:
    """The settings as they would be if the user had given only model and preset."""
    return layered(type(config), choices(config))
