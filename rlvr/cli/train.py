"""`rlvr train`, `rlvr sft`, `rlvr reward-model`: parse the flags, then train, or with `--dry_run` say what would be done."""

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from rlvr import __version__
from rlvr.boost.signals import Interrupted, second_signal_ends
from rlvr.cli.commands import named
from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.config.flags import Parsed, parse, parse_with_origins
from rlvr.config.help import asks_for_help
from rlvr.config.layers import AnyConfig
from rlvr.validate.common import check_results
from rlvr.validate.rewards import check_rewards
from rlvr.validate.settings import check_ranges, check_unread
from rlvr.validate.sources import check_sources

T = TypeVar("T")


def train_command(argv: list[str]) -> None:
    """Train as the flags and the file say.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    _command(argv, Config, "rlvr.validate.ppo:check_config", "dry_run:dry_run", "rlvr.api:train")


def ray_command(argv: list[str]) -> None:
    """`scripts/train_rlvr_on_ray.py`: the flags of ColossalAI's script beside those of `rlvr train`.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    from rlvr.memory.footprint import read_config
    from rlvr.ray.flags import check_family, from_reference

    if asks_for_help(argv):
        return train_command(argv)
    words, family = from_reference(argv)
    if family is not None:
        model = parse(take_switch(words, "dry_run")[1]).model
        check_family(model.pretrain, family, read_config(model.pretrain, model.trust_remote_code).model_type)
    train_command(words)


def sft_command(argv: list[str]) -> None:
    """Fine-tune as the flags and the file say.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    _command(
        argv,
        SFTConfig,
        "rlvr.validate.supervised:check_sft",
        "dry_run:supervised_dry_run",
        "rlvr.run.supervised:train_sft",
    )


def reward_model_command(argv: list[str]) -> None:
    """Train a reward model as the flags and the file say.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    _command(
        argv,
        RewardTrainingConfig,
        "rlvr.validate.supervised:check_reward_training",
        "dry_run:supervised_dry_run",
        "rlvr.run.supervised:train_reward_model",
    )


def _command(argv: list[str], kind: type[AnyConfig], check: str, dry_run: str, train: str) -> None:
    """Parse, check, then train or say what would be done. Functions by place (`named`), imported when they are needed."""
    dry, words = take_switch(argv, "dry_run")
    parsed: Parsed[Any] = parse_with_origins(words, kind)
    _check_first(parsed)
    named(check)(parsed.config, parsed.flags)
    if dry:
        named(dry_run)(parsed)
        return
    if (
        int(os.environ.get("RANK", "0")) == 0
    ):  # transformers and ColossalAI take seconds to import: say that all is well
        print(f"rlvr {__version__}: the settings are fine; loading", flush=True)
    until_stopped(named(train), parsed.config)


def _check_first(parsed: Parsed[Any]) -> None:
    """The checks that load no torch: most mistakes are told at once, and not after seconds of imports."""
    config = parsed.config
    check_ranges(config)
    check_results(config)
    if isinstance(config, Config):
        check_rewards(config)
    check_unread(config, parsed.flags)
    check_sources(config)


def until_stopped(train: Callable[[T], object], config: T) -> None:
    """Train; after a request to stop, say how to go on and exit with the signal's status."""
    try:
        with second_signal_ends():
            train(config)
    except Interrupted as stop:
        if stop.checkpoint:
            print(f"{stop}; saved {stop.checkpoint}. Go on with the same command and --resume.", file=sys.stderr)
        else:
            print(f"{stop}; nothing was saved", file=sys.stderr)
        raise SystemExit(128 + stop.signum) from None


def take_switch(argv: list[str], name: str) -> tuple[bool, list[str]]:
    """Split the switch `--name` (or with dashes) off the flags."""
    rest = [word for word in argv if word.replace("-", "_") != f"__{name}"]
    return len(rest) < len(argv), rest
