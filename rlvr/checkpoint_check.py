"""Which checkpoint is whole: comparing with the manifest, choosing where to go on, clearing up after a kill.

The layout stands in `rlvr.checkpoint`.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from rlvr.boost.process import host_name
from rlvr.checkpoint import DRAFT, FOLDER, MANIFEST, OLD, list_checkpoints, sha256
from rlvr.errors import UserError
from rlvr.metrics import gather_json


@dataclass(frozen=True)
class Choice:
    """Where to go on, and what was passed over on the way there.

    Attributes:
        checkpoint: the newest whole one; None where there is none at all.
        warnings: what is wrong with each newer one.
    """

    checkpoint: Path | None
    warnings: tuple[str, ...] = ()


def newest_whole(save_path: str | Path) -> Choice:
    """The newest checkpoint of a run that is as it was written.

    Raises:
        UserError: there are checkpoints, and none is whole; says what is wrong with each.
    """
    damaged: list[str] = []
    for checkpoint in reversed(list_checkpoints(save_path)):
        reason = damage(checkpoint)
        if reason is None:
            return Choice(checkpoint, tuple(f"{what}; going on from {checkpoint.name}" for what in damaged))
        damaged.append(f"the checkpoint {checkpoint} is damaged: {reason}")
    if damaged:
        raise UserError("; ".join(damaged) + "; no other is whole: start anew with another --save_path")
    return Choice(None)


def damage(checkpoint: Path) -> str | None:
    """How the checkpoint differs from its manifest; None if it is whole."""
    try:
        manifest = read_manifest(checkpoint)
        for name, entry in manifest.items():
            path = checkpoint / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != entry["bytes"]:
                return f"{name} has {path.stat().st_size} bytes instead of {entry['bytes']}"
            if sha256(path) != entry["sha256"]:
                return f"{name} has changed"
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} can't be read"
    except OSError as error:
        return f"{Path(error.filename or checkpoint).name} can't be read: {error.strerror}"
    return None


def read_manifest(checkpoint: Path) -> dict[str, dict[str, object]]:
    """File name -> its size and digest.

    Raises:
        OSError, ValueError, AttributeError: it can't be read, or is no manifest.
    """
    manifest = json.loads((checkpoint / MANIFEST).read_text())
    return dict(manifest.items())


def verify(checkpoint: Path) -> None:
    """Compare every file with the manifest, in every process as it sees them. Collective: all raise if one must.

    Raises:
        UserError: names the file that is missing or damaged and the newest checkpoint that is whole, if there is one; or
            the machines that don't see the checkpoint.
    """
    found = [tuple(entry) for entry in gather_json([host_name(), damage(checkpoint)])]
    if all(reason is None for _, reason in found):
        return
    if found[0][1] is None:
        raise UserError(_not_shared(checkpoint, found))
    others = [c for c in reversed(list_checkpoints(checkpoint.parent.parent)) if c != checkpoint and damage(c) is None]
    remedy = (
        f"go on from {others[0].name}, which is whole"
        if others
        else "there is no other whole checkpoint; start anew with another --save_path"
    )
    raise UserError(f"the checkpoint {checkpoint} is damaged: {found[0][1]}; {remedy}")


def _not_shared(checkpoint: Path, found: list[tuple[str, str | None]]) -> str:
    """Rank 0 reads the checkpoint and others don't."""
    worst: dict[str, list[str]] = {}
    for rank, (host, reason) in enumerate(found):
        if reason is not None:
            worst.setdefault(f"{host} ({reason})", []).append(str(rank))
    places = "; ".join(f"rank {', '.join(ranks)} on {what}" for what, ranks in worst.items())
    return (
        f"the checkpoint {checkpoint} is whole on {found[0][0]} (rank 0), but not for {places}. Every process reads it, so "
        "shared storage is needed: put --save_path where all machines see the same files, or copy the folder there"
    )


def clear_up(save_path: Path) -> None:
    """Undo what a killed process left half done: drafts go; a folder that was being replaced is put back."""
    for folder in (save_path, save_path / FOLDER):
        for old in folder.glob(f"{OLD}*"):
            target = folder / old.name.removeprefix(OLD)
            if target.exists():
                shutil.rmtree(old)
            else:
                old.rename(target)
        for draft in folder.glob(f"{DRAFT}*"):
            shutil.rmtree(draft)
