"""Settings from command-line flags, with a YAML file beneath them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import tyro

from rewards.errors import UserError
from rlvr.config.catalog import Place, canonical, flags_by_spelling, given_places
from rlvr.config.help import GENERAL, About, asks_for_help, help_text, show
from rlvr.config.run import TINY_LABEL, TINY_SETTINGS, Config, base_config, labelled_layers
from rlvr.config.supervised import (
    REWARD_TINY_SETTINGS,
    SFT_TINY_SETTINGS,
    RewardTrainingConfig,
    SFTConfig,
    reward_training_config,
    sft_config,
)
from rlvr.config.tree import load_yaml, overlay
from rlvr.suggest import did_you_mean

T = TypeVar("T")
Layer = Mapping[str, Mapping[str, Any]]
LabelledLayers = list[tuple[str, Layer]]
DESCRIPTION = "Train a language model by PPO on problems whose answers a rule can check."
DRY_RUN = {"--dry_run": "print settings, batch arithmetic and memory; train nothing, write nothing"}


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """What a command line comes to.

    Attributes:
        config: the settings.
        flags: the settings that flags gave.
        origins: where the value of each setting comes from: `default`, `preset NAME`, `built-in model`, `file`, `flag`.
    """

    config: T
    flags: frozenset[Place]
    origins: Mapping[Place, str]


def parse(argv: list[str]) -> Config:
    """Build the settings of a run from command-line flags (and `--config FILE`, over which flags win).

    Exits with status 2 and one message for a value of the wrong type, as argparse does.

    Raises:
        UserError: an unknown flag, or a file that can't be read.
    """
    return parse_with_origins(argv).config


def parse_with_origins(argv: list[str]) -> Parsed[Config]:
    """`parse`, with where each value comes from."""

    def named(config: Config) -> Layer:
        return {"model": {"pretrain": config.model.pretrain}, "algo": {"preset": config.algo.preset}}

    about = About("rlvr train", DESCRIPTION, DRY_RUN | GENERAL, _notes(TINY_SETTINGS))
    config = parse_layers(argv, base_config, named, about)
    return _parsed(argv, config, labelled_layers(config.algo.preset, config.model.pretrain == "tiny"))


def parse_sft(argv: list[str]) -> SFTConfig:
    """Build the settings of supervised fine-tuning from command-line flags, as `parse` does."""
    return parse_sft_with_origins(argv).config


def parse_sft_with_origins(argv: list[str]) -> Parsed[SFTConfig]:
    """`parse_sft`, with where each value comes from."""
    text = "Fine-tune a language model on prompts and responses."
    about = About("rlvr sft", text, DRY_RUN | GENERAL, _notes(SFT_TINY_SETTINGS))
    config = parse_layers(argv, sft_config, _named_model, about)
    return _parsed(argv, config, _beneath(config, SFT_TINY_SETTINGS))


def parse_reward_training(argv: list[str]) -> RewardTrainingConfig:
    """Build the settings of training a reward model from command-line flags, as `parse` does."""
    return parse_reward_training_with_origins(argv).config


def parse_reward_training_with_origins(argv: list[str]) -> Parsed[RewardTrainingConfig]:
    """`parse_reward_training`, with where each value comes from."""
    text = "Train a reward model on pairs of responses."
    about = About("rlvr reward-model", text, DRY_RUN | GENERAL, _notes(REWARD_TINY_SETTINGS))
    config = parse_layers(argv, reward_training_config, _named_model, about)
    return _parsed(argv, config, _beneath(config, REWARD_TINY_SETTINGS))


def _beneath(config: SFTConfig | RewardTrainingConfig, of_tiny: Layer) -> LabelledLayers:
    return [(TINY_LABEL, of_tiny)] if config.model.pretrain == "tiny" else []


def _parsed(argv: list[str], config: T, beneath: LabelledLayers) -> Parsed[T]:
    given, words = take_config_file(argv)
    flags = given_places(words, type(config))
    return Parsed(config, frozenset(flags), _origins(config, [*beneath, ("file", given)], flags))


def _named_model(config: SFTConfig | RewardTrainingConfig) -> Layer:
    return {"model": {"pretrain": config.model.pretrain}}


def parse_layers(argv: list[str], base_of: Callable[[Layer], T], named: Callable[[T], Layer], about: About) -> T:
    """Lay flags over a file over what `base_of` puts beneath them.

    Args:
        base_of: the defaults with some settings of the user's laid over them, and between them what those bring along.
        named: of the settings, those that bring others along (a model, a preset): flags may have named them, and what
            they bring must lie beneath all flags.
        about: what help says.
    """
    given, argv = take_config_file(argv)
    base = base_of(given)
    config = parse_over(base, argv, about)
    right_base = base_of(overlay(given, named(config)))
    return config if right_base == base else parse_over(right_base, argv, about)


def _notes(of_tiny: Layer) -> dict[Place, str]:
    """What help says of defaults that the built-in model has its own of."""
    return {(s, name): f"tiny: {show(value)}" for s, values in of_tiny.items() for name, value in values.items()}


def _origins(config: Any, layers: LabelledLayers, flags: set[Place]) -> dict[Place, str]:
    origins = {(s.name, f.name): "default" for s in fields(config) for f in fields(getattr(config, s.name))}
    for label, layer in layers:
        origins |= {(section, name): label for section, values in layer.items() for name in values}
    return origins | dict.fromkeys(flags, "flag")


def parse_over(base: T, argv: list[str], about: About) -> T:
    """`base` with the flags laid over it; flags carry the names of fields, without their sections.

    `--help` prints help and exits with status 0; a value of the wrong type exits with status 2.

    Raises:
        UserError: an unknown flag; the message names the nearest.
    """
    if asks_for_help(argv):
        print(help_text(type(base), argv, about), end="")
        raise SystemExit(0)
    refuse_unknown(argv, type(base), about)
    return tyro.cli(
        tyro.conf.OmitArgPrefixes[type(base)],  # type: ignore[misc]
        args=argv,
        default=base,
        prog=about.prog,
        use_underscores=True,
        description=about.description,
    )


def refuse_unknown(argv: Sequence[str], kind: type, about: About) -> None:
    """Raise `UserError` for the first flag that the tree does not have; the message names the nearest that it has."""
    known = set(flags_by_spelling(kind))
    for word in argv:
        if word.startswith("--") and len(word) > 2 and canonical(word) not in known:
            general = {canonical(flag.split()[0]) for flag in about.general}
            near = did_you_mean(canonical(word), known | general).replace("'", "'--", 1)
            raise UserError(f"unknown flag {word.partition('=')[0]}.{near} `{about.prog} --help` lists all flags")


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
