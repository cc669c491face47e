"""Uploads and trackers that would fail are found before anything is loaded; the same in every kind of run."""

from rlvr.config import CheckpointConfig, Config, RewardTrainingConfig, SFTConfig
from rlvr.errors import UserError
from rlvr.hub import Target, check_target
from rlvr.trackers.available import check_trackers

AnyConfig = Config | SFTConfig | RewardTrainingConfig


def check_results(config: AnyConfig) -> None:
    """Refuse trackers that are not installed, and uploads for which there is no token or name.

    Raises:
        UserError: says what is missing.
    """
    check_trackers(config.log)
    target = target_of(config.ckpt)
    if target is None:
        return
    try:
        check_target(target)
    except UserError as error:
        raise UserError(f"--push_to_hub {target.repo}: {error}") from None


def target_of(ckpt: CheckpointConfig) -> Target | None:
    """Where the settings say that the model is to be uploaded; None = nowhere."""
    return None if ckpt.push_to_hub is None else Target(ckpt.push_to_hub, ckpt.hub_private, ckpt.hub_revision)
