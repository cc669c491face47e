"""Settings of supervised training that don't go together are found before anything is loaded."""

from collections.abc import Collection

from rlvr.checks.lora import lora_settings
from rlvr.checks.results import check_results
from rlvr.checks.unread_supervised import check_unread
from rlvr.config import RewardTrainingConfig, SFTConfig
from rlvr.config.catalog import Place
from rlvr.errors import UserError


def check_sft(config: SFTConfig, flags: Collection[Place] = ()) -> None:
    """Refuse values out of range, settings that exclude each other, and settings of the user that nothing reads; `flags`
    are those that flags gave.

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
    if config.train.center_rewards_coefficient < 0:
        raise UserError(
            f"--center_rewards_coefficient {config.train.center_rewards_coefficient}: must be at least 0; 0 = off"
        )
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


_AT_LEAST_1 = {
    "data": ("max_samples", "max_length"),
    "train": ("num_epochs", "max_steps", "train_batch_size", "accumulation_steps", "micro_batch_tokens", "num_threads"),
    "ckpt": ("keep_checkpoints",),
    "eval": ("eval_samples",),
    "log": ("log_interval",),
}
_AT_LEAST_0 = {
    "train": ("lr", "weight_decay", "warmup_steps", "grad_clip"),
    "ckpt": ("save_interval",),
    "eval": ("eval_interval",),
}


def _check_loop(config: SFTConfig | RewardTrainingConfig, sequences: int) -> None:
    if config.parallel.plugin == "3d":
        raise UserError(
            "--plugin 3d is there for `rlvr train` only: supervised losses are not cut into stages; take --plugin zero1, zero2 "
            "or fsdp"
        )
    for least, table in ((1, _AT_LEAST_1), (0, _AT_LEAST_0)):
        for section, names in table.items():
            for name in names:
                value = getattr(getattr(config, section), name)
                if value is not None and not value >= least:
                    raise UserError(f"--{name} {value}: must be at least {least}")
    if config.train.max_steps is not None and config.train.num_epochs != 1:
        raise UserError("--max_steps and --num_epochs both say how long the run is: give one of them")
    d = config.data
    if not 0 <= d.eval_share < 1:
        raise UserError(f"--eval_share {d.eval_share}: must be a share from 0 to below 1, such as 0.05")
    if d.eval_share and d.eval_dataset:
        raise UserError("--eval_share and --eval_dataset both say what is held out: give one of them")
    tokens = config.train.micro_batch_tokens
    if tokens is not None and tokens < sequences * d.max_length:
        raise UserError(
            f"--micro_batch_tokens {tokens} is less than one row may have ({sequences} x --max_length {d.max_length}): raise "
            "the former or lower the latter"
        )
    check_results(config)
    if config.ckpt.resume and config.ckpt.save_path is None:
        raise UserError("--resume needs --save_path, the folder of the run to go on with")
