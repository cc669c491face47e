"""Settings from command-line flags, with a YAML file beneath them."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import tyro

from rewards.errors import UserError
from rlvr.config.run import Config, base_config
from rlvr.config.supervised import RewardTrainingConfig, SFTConfig, reward_training_config, sft_config
from rlvr.config.tree import load_yaml, overlay

T = TypeVar("T")
Layer = Mapping[str, Mapping[str, Any]]
DESCRIPTION = "Train a language model by PPO on problems whose answers a rule can check."


def parse(argv: list[str]) -> Config:
    """Build the settings of a run from command-line flags (and `--config FILE`, over which flags win).

    Exits with status 2 and one message for an unknown flag or a value of the wrong type, as argparse does.
    """

    def named(config: Config) -> Layer:
        return {"model": {"pretrain": config.model.pretrain}, "algo": {"preset": config.algo.preset}}

    return parse_layers(argv, base_config, named, DESCRIPTION)


def parse_sft(argv: list[str]) -> SFTConfig:
    """Build the settings of supervised fine-tuning from command-line flags, as `parse` does."""
    return parse_layers(argv, sft_config, _named_model, "Fine-tune a language model on prompts and responses.")


def parse_reward_training(argv: list[str]) -> RewardTrainingConfig:
    """Build the settings of training a reward model from command-line flags, as `parse` does."""
    return parse_layers(argv, reward_training_config, _named_model, "Train a reward model on pairs of responses.")


def _named_model(config: SFTConfig | RewardTrainingConfig) -> Layer:
    return {"model": {"pretrain": config.model.pretrain}}


def parse_layers(argv: list[str], base_of: Callable[[Layer], T], named: Callable[[T], Layer], description: str) -> T:
    """Lay flags over a file over what `base_of` puts beneath them.

    Args:
        base_of: the defaults with some settings of the user's laid over them, and between them what those bring along.
        named: of the settings, those that bring others along (a model, a preset): flags may have named them, and what
            they bring must lie beneath all flags.
    """
    given, argv = take_config_file(argv)
    base = base_of(given)
    config = parse_over(base, argv, description)
    right_base = base_of(overlay(given, named(config)))
    return config if right_base == base else parse_over(right_base, argv, description)


def parse_over(base: T, argv: list[str], description: str) -> T:
    """`base` with the flags laid over it; flags carry the names of fields, without their sections."""
    return tyro.cli(
        tyro.conf.OmitArgPrefixes[type(base)],  # type: ignore[misc]
        args=argv,
        default=base,
        use_underscores=True,
        description=description,
    )


def take_config_file(argv: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Split `--config FILE` (or `--config=FILE`) off the flags."""
    rest, path = [], None
    words = iter(argv)
    for word in words:
        if word == "--config":
            path = next(words, None)
            if path is None:
                raise UserError("--config needs the path of a YAML file")
        elif word.startswith("--config="):
            path = word.removeprefix("--config=")
        else:
            rest.append(word)
    return (load_yaml(path) if path else {}), rest
