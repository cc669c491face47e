"""Uploading a trained model to the Hugging Face hub, with the ordinary client of the hub and its ordinary token.

At the end of a run with `--push_to_hub`, and by `rlvr push`. The token is that of `hf auth login` or of the variable HF_TOKEN. It
is no setting, on purpose: settings are written into the run's folder and sent to trackers. A failed upload changes nothing that
is saved here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr.errors import UserError
from rlvr.tracking.tracker import reason_of


@dataclass(frozen=True)
class Target:
    """A repository on the hub to upload to.

    Attributes:
        repo: `NAME` (under the owner of the token) or `OWNER/NAME`.
        private: make it private, if it is made now.
        revision: branch, made if it does not exist; None = main.
    """

    repo: str
    private: bool = False
    revision: str | None = None

    @property
    def flags(self) -> str:
        """The target as `rlvr push` takes it."""
        private = " --private" if self.private else ""
        return self.repo + private + (f" --revision {self.revision}" if self.revision else "")


@dataclass(frozen=True)
class Part:
    """A folder, or only some files in it, and its place in the repository ("" = the root)."""

    folder: Path
    place: str = ""
    only: tuple[str, ...] = ()


def check_target(target: Target) -> None:
    """Refuse a target that the hub would refuse, as far as can be told without asking it.

    Raises:
        UserError: the name is invalid, there is no token, or the hub's client is set to stay offline.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(target.repo)
    except HFValidationError as error:
        raise UserError(
            f"{target.repo!r} is no name of a repository on the hub: give NAME or OWNER/NAME ({str(error).splitlines()[0]})"
        ) from None
    if target.revision is not None and not target.revision.strip():
        raise UserError("the revision is empty: name a branch, or leave it out for main")
    if constants.HF_HUB_OFFLINE:
        raise UserError("nothing can be uploaded to the hub while HF_HUB_OFFLINE is set: unset it")
    if get_token() is None:
        raise UserError(
            "there is no token for the hub: log in with `hf auth login`, or set HF_TOKEN to one that may write"
        )


def upload(parts: Sequence[Part], target: Target, message: str = "Upload from rlvr") -> str:
    """Make the repository, unless it exists, and upload the parts, each as a commit. Returns its address.

    Raises:
        UserError: the hub can't be reached or refuses; says why.
    """
    check_target(target)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    api = HfApi()
    try:
        made = api.create_repo(target.repo, private=target.private or None, exist_ok=True)
        if target.revision not in (None, "main"):
            api.create_branch(made.repo_id, branch=str(target.revision), exist_ok=True)
        for part in parts:
            api.upload_folder(
                repo_id=made.repo_id,
                folder_path=part.folder,
                path_in_repo=part.place or None,
                allow_patterns=list(part.only) or None,
                revision=target.revision,
                commit_message=message,
            )
    # The client's own checks raise ValueError, and hf_xet, which carries large files, RuntimeError.
    except (HTTPError, OSError, ValueError, RuntimeError) as error:
        raise UserError(f"{target.repo} on {api.endpoint}: {_reason(error)}") from error
    return str(made)


def _reason(error: Exception) -> str:
    """The error in a line, with a remedy for the hub's usual answers."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    advice = {
        401: " The token is wrong or has expired: `hf auth login`.",
        403: " The token may not write there: take one that may, or another name.",
        404: " There is no such owner, or the token may not see it.",
        409: " The hub says that this conflicts with what is there.",
    }
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = " ".join(lines[:2])[:400] or reason_of(error)
    return f"{type(error).__name__}: {said.rstrip('.')}.{advice.get(status or 0, '')}"
