"""The end of a run: the card beside the model that it saved, and the upload, if one was asked for."""

from collections.abc import Callable
from pathlib import Path
from shlex import quote

from rlvr.checks.results import target_of
from rlvr.config import CheckpointConfig
from rlvr.errors import UserError
from rlvr.hub import Part, upload
from rlvr.models.saved import trained_model
from rlvr.report.card import write_card


def finish(folder: Path, ckpt: CheckpointConfig, say: Callable[[str], None]) -> None:
    """Write the card, and upload what the run's folder holds as its result. On rank 0.

    Raises:
        UserError: the model was not uploaded; says where it lies and how to upload it later.
    """
    model = trained_model(folder)
    if model is None:
        return
    write_card(folder, model)
    target = target_of(ckpt)
    if target is None:
        return
    try:
        say(f"uploaded: {upload([Part(model)], target)}")
    except UserError as error:
        raise UserError(
            f"the run is finished and the model saved in {model}, but it was not uploaded to {error} "
            f"Upload it with: rlvr push {quote(str(folder))} {target.flags}"
        ) from error
