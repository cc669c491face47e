"""Checks of supervised training: settings that don't go together, found before anything is loaded."""

from collections.abc import Collection

from rlvr.config import RewardTrainingConfig, SFTConfig
from rlvr.config.catalog import Place
from rlvr.errors import UserError
from rlvr.validate.common import check_micro_batch, check_results
from rlvr.validate.lora import lora_settings
from rlvr.validate.settings import check_ranges, check_unread


def check_sft(config: SFTConfig, flags: Collection[Place] = ()) -> None:
    """Refuse values out of range, settings that exclude each other, and settings that nothing reads.

    Args:
        config: the settings.
        flags: the settings that flags gave; see `rlvr.validate.settings`.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    _check_loop(config, sequences=1)
    lora_settings(config.model)
    d = config.data
    asked = d.question_column or d.answer_column
    if asked and (d.prompt_text_column or d.text_column):
        raise UserError(
            "--question_column and --answer_column go through the template, --prompt_text_column and --text_column are "
            "taken as they are: give one of the two pairs"
        )
    if d.prompt_text_column and not d.text_column:
        raise UserError(
            f"--prompt_text_column {d.prompt_text_column} needs --text_column, the column with the response"
        )
    check_unread(config, flags)


def check_reward_training(config: RewardTrainingConfig, flags: Collection[Place] = ()) -> None:
    """Refuse what `check_sft` refuses, for a reward model.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    _check_loop(config, sequences=2)
    lora_settings(config.model, continues=False)
    if config.model.use_flash_attn and not config.model.checkpoint_path:
        raise UserError(
            "--use_flash_attn: a new reward model is made with the usual attention; leave the flag out, or go on from a "
            "trained one with --checkpoint_path"
        )
    d = config.data
    if d.question_column and d.prompt_text_column:
        raise UserError(
            "--question_column goes through the template and --prompt_text_column is taken as it is: give one of them"
        )
    check_unread(config, flags)


def _check_loop(config: SFTConfig | RewardTrainingConfig, sequences: int) -> None:
    """Check the settings that both kinds of run have. `sequences` is the number of sequences in a row."""
    if config.parallel.plugin == "3d":
        raise UserError(
            "--plugin 3d is there for `rlvr train` only: supervised losses are not cut into stages; take --plugin zero1, zero2 "
            "or fsdp"
        )
    check_ranges(config)
    if config.train.max_steps is not None and config.train.num_epochs != 1:
        raise UserError("--max_steps and --num_epochs both say how long the run is: give one of them")
    d = config.data
    if d.eval_share and d.eval_dataset:
        raise UserError("--eval_share and --eval_dataset both say what is held out: give one of them")
    check_micro_batch(
        config.train.micro_batch_tokens, sequences * d.max_length, f"{sequences} x --max_length {d.max_length}"
    )
    check_results(config)
