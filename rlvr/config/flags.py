"""Settings from command-line flags, with a YAML file beneath them."""

from typing import Any, TypeVar

import tyro

from rewards.errors import UserError
from rlvr.config.run import Config, base_config
from rlvr.config.tree import load_yaml, overlay

T = TypeVar("T")
DESCRIPTION = "Train a language model by PPO on problems whose answers a rule can check."


def parse(argv: list[str]) -> Config:
    """Build the settings of a run from command-line flags (and `--config FILE`, over which flags win).

    Exits with status 2 and one message for an unknown flag or a value of the wrong type, as argparse does.
    """
    given, argv = take_config_file(argv)
    base = base_config(given)
    config = parse_over(base, argv, DESCRIPTION)
    # Flags may have named the model and the preset, whose settings must lie beneath all flags.
    named = {"model": {"pretrain": config.model.pretrain}, "algo": {"preset": config.algo.preset}}
    right_base = base_config(overlay(given, named))
    return config if right_base == base else parse_over(right_base, argv, DESCRIPTION)


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
