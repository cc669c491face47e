"""Layers of settings: at the bottom the tree's defaults, then those of a preset and of a model, on top the user's."""

from typing import Any, TypeVar

from rlvr.config.models import SETTINGS_OF
from rlvr.config.ppo import Config
from rlvr.config.presets import Settings, find_preset
from rlvr.config.supervised import RewardTrainingConfig, SFTConfig
from rlvr.config.tree import merge, overlay

AnyConfig = Config | SFTConfig | RewardTrainingConfig
T = TypeVar("T", bound=AnyConfig)


def base_config(given: Settings | None = None) -> Config:
    """The defaults with `given` laid over them. In between are the settings of the preset that it names, and the model's own if it
    has any, of which a preset replaces sizes and learning rates only by values that are meant for small models.

    Raises:
        UserError: an unknown preset, section or field, or a value of the wrong type.
    """
    return layered(Config, given or {})


def sft_config(given: Settings | None = None) -> SFTConfig:
    """The defaults, the model's own settings if it has any, and `given` on top.

    Raises:
        UserError: an unknown section or field, or a value of the wrong type.
    """
    return layered(SFTConfig, given or {})


def reward_training_config(given: Settings | None = None) -> RewardTrainingConfig:
    """As `sft_config`, for a reward model."""
    return layered(RewardTrainingConfig, given or {})


def layered(kind: type[T], given: Settings) -> T:
    """The settings of this kind of run, with `given` on top of its layers. Raises as `base_config`."""
    config = merge(kind(), given)
    return merge(kind(), overlay(*(layer for _, layer in layers_beneath(config)), given))


def layers_beneath(config: AnyConfig) -> list[tuple[str, Settings]]:
    """The layers of model and preset, the lowest first, each with its name: `preset NAME` or `model NAME`.

    Raises:
        UserError: an unknown preset.
    """
    preset = config.algo.preset if isinstance(config, Config) else None
    recipe, label = find_preset(preset) if preset else None, f"preset {preset}"
    own, model = settings_of_model(config), f"model {config.model.pretrain}"
    if recipe is None or not own:
        return [(model, own)] if own else [(label, recipe.settings)] if recipe else []
    # The preset decides the mathematics, the model sizes and learning rates.
    sizes = {section: values for section, values in own.items() if section != "algo"}
    return [(model, own), (label, recipe.settings), (model, sizes), (label, recipe.for_small)]


def settings_of_model(config: AnyConfig) -> Settings:
    """What the model brings by itself for this kind of run; empty for most."""
    return SETTINGS_OF.get(config.model.pretrain, {}).get(type(config), {})


def choices(config: AnyConfig) -> dict[str, dict[str, Any]]:
    """The settings among these that choose layers: the model and the preset."""
    chosen: dict[str, dict[str, Any]] = {"model": {"pretrain": config.model.pretrain}}
    return chosen | {"algo": {"preset": config.algo.preset}} if isinstance(config, Config) else chosen


def untouched(config: T) -> T:
    """The settings as they would be if the user had given only model and preset."""
    return layered(type(config), choices(config))
