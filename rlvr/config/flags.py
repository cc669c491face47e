"""Settings from command-line flags, laid over a YAML file if one is given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import tyro

from rewards.errors import UserError
from rlvr.config.catalog import Place, canonical, flags_by_spelling, given_places, show, values_of
from rlvr.config.help import GENERAL, About, asks_for_help, help_text
from rlvr.config.layers import AnyConfig, choices, layered, layers_beneath
from rlvr.config.models import SETTINGS_OF
from rlvr.config.ppo import Config
from rlvr.config.presets import Settings
from rlvr.config.supervised import RewardTrainingConfig, SFTConfig
from rlvr.config.tree import load_yaml, overlay
from rlvr.errors import did_you_mean

T = TypeVar("T", bound=AnyConfig)

ELSEWHERE: Mapping[str, str] = {
    "total_episodes": "TRL counts responses of the whole run: --num_episodes, of --experience_batch_size responses each",
    "num_mini_batches": "an optimizer step takes --train_batch_size x --accumulation_steps responses, so there are as many in an episode "
    "as those divide it into",
    "per_device_train_batch_size": "--train_batch_size counts the responses of a pass over all processes: this times their number",
    "per_device_eval_batch_size": "--generation_batch_size",
    "stop_token": "stops are the template's: stop_ids in --conversation_template_config",
    "report_to": "--log_dir FOLDER for TensorBoard, --use_wandb, --use_mlflow, --use_trackio",
    "need_optim_ckpt": "optimizer states are in every checkpoint: --save_interval, --resume",
    **dict.fromkeys(
        ("revision", "model_revision", "dataset_revision"),
        "a revision is part of a name on the hub: --pretrain OWNER/NAME#REVISION, "
        "--prompt_dataset OWNER/NAME@CONFIG:SPLIT#REVISION",
    ),
    "use_lora": "--lora_config FILE",
    "lora_rank": "--lora_config FILE, with its r",
    "sft_model_path": "--pretrain, or --checkpoint_path",
    "reward_model_path": "--rm_checkpoint_path",
    "value_model_path": "--critic_checkpoint_path",
    "actor_model_path": "--pretrain",
    "dataset_name": "--prompt_dataset",
    "train_files": "--prompt_dataset",
    "val_files": "--eval_datasets",
    "bf16": "--mixed_precision bf16",
    "fp16": "--mixed_precision fp16",
    "deepspeed": "--plugin zero1, zero2, zero2_cpu or fsdp shards optimizer, gradients and weights",
}
"""Flags of TRL, OpenRLHF, verl and ColossalAI that have no counterpart under one name -> what to type instead."""

_DRY_RUN = {"--dry_run": "print settings, batch arithmetic and memory; train nothing, write nothing"}
_COMMANDS: Mapping[type, tuple[str, str]] = {
    Config: ("rlvr train", "Train a language model by PPO on problems whose answers a rule can check."),
    SFTConfig: ("rlvr sft", "Fine-tune a language model on prompts and responses."),
    RewardTrainingConfig: ("rlvr reward-model", "Train a reward model on pairs of responses."),
}


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """The settings that a command line gives, and the origin of each.

    Attributes:
        config: the settings.
        flags: the settings that flags gave.
        origins: the source of each setting's value: `default`, `preset NAME`, `built-in model`, `file`, `flag`.
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


def parse_sft(argv: list[str]) -> SFTConfig:
    """Build the settings of supervised fine-tuning from command-line flags, as `parse` does."""
    return parse_with_origins(argv, SFTConfig).config


def parse_reward_training(argv: list[str]) -> RewardTrainingConfig:
    """Build the settings of training a reward model from command-line flags, as `parse` does."""
    return parse_with_origins(argv, RewardTrainingConfig).config


def parse_with_origins(argv: list[str], kind: type[T] = Config) -> Parsed[T]:  # type: ignore[assignment]
    """`parse` for any kind of run, with the origin of each value."""
    about = _about(kind)
    given, words, path = take_config_file(argv)
    try:
        base = layered(kind, given)
    except UserError as error:
        raise UserError(f"--config {path}: {str(error).removeprefix('config: ')}" if path else str(error)) from None
    config = _parse_over(base, words, about)
    # A flag may have named another model or preset. Its own settings are a lower layer than any flag, so parse again over them.
    right_base = layered(kind, overlay(given, choices(config)))
    if right_base != base:
        config = _parse_over(right_base, words, about)
    flags = given_places(words, kind)
    return Parsed(config, frozenset(flags), _origins(config, [*layers_beneath(config), ("file", given)], flags))


def _about(kind: type) -> About:
    """The head of help for a kind of run, with notes on settings of which the built-in model has its own default."""
    prog, description = _COMMANDS[kind]
    notes = {
        (section, name): f"tiny: {show(value)}"
        for section, values in SETTINGS_OF["tiny"][kind].items()
        for name, value in values.items()
    }
    return About(prog, description, _DRY_RUN | GENERAL, notes)


def _origins(config: AnyConfig, layers: Sequence[tuple[str, Settings]], flags: set[Place]) -> dict[Place, str]:
    origins = {flag.place: "default" for flag, _ in values_of(config)}
    for label, layer in layers:
        origins |= {(section, name): label for section, values in layer.items() for name in values}
    return origins | dict.fromkeys(flags, "flag")


def _parse_over(base: T, argv: list[str], about: About) -> T:
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
    """Raise `UserError` for the first unknown flag; the message suggests the nearest known one."""
    known = set(flags_by_spelling(kind))
    for word in argv:
        if word.startswith("--") and len(word) > 2 and canonical(word) not in known:
            if instead := ELSEWHERE.get(canonical(word)):
                raise UserError(
                    f"unknown flag {word.partition('=')[0]}. Here: {instead}. `{about.prog} --help` lists all flags"
                )
            general = {canonical(flag.split()[0]) for flag in about.general}
            near = did_you_mean(f"--{canonical(word)}", [f"--{name}" for name in sorted(known | general)])
            raise UserError(f"unknown flag {word.partition('=')[0]}.{near} `{about.prog} --help` lists all flags")


def take_config_file(argv: list[str]) -> tuple[dict[str, Any], list[str], str | None]:
    """Split `--config FILE` (or `--config=FILE`) off the flags: what is in the file, the other flags, its path."""
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
    return (load_yaml(path) if path else {}), rest, path
