"""`rlvr train`, `rlvr sft`, `rlvr reward-model`: parse the flags, then train, or with `--dry_run` say what would be done."""

import sys
from collections.abc import Callable
from typing import TypeVar

from rlvr.config.flags import parse_reward_training_with_origins, parse_sft_with_origins, parse_with_origins
from rlvr.config.help import asks_for_help

T = TypeVar("T")


def train_command(argv: list[str]) -> None:
    """Train as the flags and the file say.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    dry, words = take_switch(argv, "dry_run")
    parsed = parse_with_origins(words)
    from rlvr.validate import check_config

    check_config(parsed.config, parsed.flags)
    if dry:
        from rlvr.tools.dry_run import dry_run

        dry_run(parsed)
        return
    from rlvr.api import train

    until_stopped(train, parsed.config)


def ray_command(argv: list[str]) -> None:
    """`scripts/train_rlvr_on_ray.py`: the flags of ColossalAI's script beside those of `rlvr train`.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    from rlvr.models.footprint import read_config
    from rlvr.ray.flags import check_family, from_reference

    if asks_for_help(argv):
        return train_command(argv)
    words, family = from_reference(argv)
    if family is not None:
        model = parse_with_origins(take_switch(words, "dry_run")[1]).config.model
        check_family(model.pretrain, family, read_config(model.pretrain, model.trust_remote_code).model_type)
    train_command(words)


def sft_command(argv: list[str]) -> None:
    """Fine-tune as the flags and the file say.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    dry, words = take_switch(argv, "dry_run")
    parsed = parse_sft_with_origins(words)
    from rlvr.validate_supervised import check_sft

    check_sft(parsed.config, parsed.flags)
    if dry:
        from rlvr.tools.dry_run_supervised import supervised_dry_run

        supervised_dry_run(parsed)
        return
    from rlvr.pipeline import train_sft

    until_stopped(train_sft, parsed.config)


def reward_model_command(argv: list[str]) -> None:
    """Train a reward model as the flags and the file say.

    Raises:
        UserError: a mistake in them, or in what they name.
    """
    dry, words = take_switch(argv, "dry_run")
    parsed = parse_reward_training_with_origins(words)
    from rlvr.validate_supervised import check_reward_training

    check_reward_training(parsed.config, parsed.flags)
    if dry:
        from rlvr.tools.dry_run_supervised import supervised_dry_run

        supervised_dry_run(parsed)
        return
    from rlvr.pipeline import train_reward_model

    until_stopped(train_reward_model, parsed.config)


def until_stopped(train: Callable[[T], object], config: T) -> None:
    """Train; after a request to stop, say how to go on and exit with the signal's status."""
    from rlvr.trainer.interrupt import Interrupted

    try:
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
