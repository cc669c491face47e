"""Checks for every kind of run: trackers and uploads that would fail, a resume without a folder, rows longer than a micro-batch."""

from rlvr.checkpoint.hub import Target, check_target
from rlvr.config import CheckpointConfig
from rlvr.config.layers import AnyConfig
from rlvr.errors import UserError
from rlvr.tracking.sinks import check_trackers


def check_results(config: AnyConfig) -> None:
    """Refuse trackers that are not installed, uploads for which there is no token or name, and a resume without a folder.

    Raises:
        UserError: says what is missing.
    """
    check_trackers(config.log)
    if config.ckpt.resume and config.ckpt.save_path is None:
        raise UserError("--resume needs --save_path, the folder of the run to go on with")
    target = target_of(config.ckpt)
    if target is None:
        return
    try:
        check_target(target)
    except UserError as error:
        raise UserError(f"--push_to_hub {target.repo}: {error}") from None


def target_of(ckpt: CheckpointConfig) -> Target | None:
    """The repository to upload the model to; None = none."""
    return None if ckpt.push_to_hub is None else Target(ckpt.push_to_hub, ckpt.hub_private, ckpt.hub_revision)


def check_micro_batch(tokens: int | None, longest: int, arithmetic: str) -> None:
    """Refuse `--micro_batch_tokens` less than the longest row, which is never cut.

    Args:
        tokens: the setting.
        longest: most tokens of a row.
        arithmetic: the flags that give that number, such as "--max_length 160".

    Raises:
        UserError: names both numbers.
    """
    if tokens is not None and tokens < longest:
        raise UserError(
            f"--micro_batch_tokens {tokens} is less than one row may have ({arithmetic}): raise the former or lower the latter"
        )
