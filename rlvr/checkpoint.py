"""Checkpoints that are whole or not there.

    SAVE_PATH/
      actor/modeling, critic/modeling     the result, as `from_pretrained` reads it
      actor/adapter, critic/adapter       with LoRA: the adapter alone, as peft's `PeftModel.from_pretrained` reads it
      checkpoints/step-000012/            12 = finished episodes; "-3" behind it = safe points into the next one
        manifest.json                     size and SHA-256 of every other file; written last
        state.json                        progress, sampler positions, KL coefficient, what run this is
        actor/modeling, actor/training.pt critic/... weights; optimizer, master weights and schedule
                                          (with LoRA: actor/adapter, critic/adapter in place of modeling)
        rank-0.pt, rank-1.pt, ...         random state and buffer of each process

A checkpoint is written into a hidden folder beside its place, flushed to the disk and renamed, so that whoever is killed
at any moment leaves either the whole checkpoint or none. Tensors are read with `weights_only=True`.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from rlvr.boost.process import barrier, host_name
from rlvr.errors import UserError
from rlvr.metrics import gather_json

MANIFEST = "manifest.json"
FOLDER = "checkpoints"
DRAFT, OLD = ".writing-", ".old-"
_NAME = re.compile(r"step-(\d{6})(?:-(\d+))?$")


def checkpoint_name(episode: int, safe_point: int = 0) -> str:
    """Folder name of a checkpoint after `episode` episodes and `safe_point` safe points of the next one."""
    return f"step-{episode:06d}" + (f"-{safe_point}" if safe_point else "")


def list_checkpoints(save_path: str | Path) -> list[Path]:
    """The checkpoints under a run's folder, oldest first."""
    folder = Path(save_path) / FOLDER
    found = [p for p in folder.iterdir() if _NAME.match(p.name)] if folder.is_dir() else []
    return sorted(found, key=_order)


def _order(path: Path) -> tuple[int, int]:
    match = _NAME.match(path.name)
    assert match
    return int(match[1]), int(match[2] or 0)


@contextmanager
def atomic_folder(target: Path, is_main: bool = True) -> Iterator[Path]:
    """A hidden folder to write into, which becomes `target` when every rank has left the block without error. Collective.

    An older `target` is replaced. On failure nothing is left behind and `target` stays as it was.

    Raises:
        UserError: in every rank, if any of them could not write.
    """
    draft = target.parent / f"{DRAFT}{target.name}"
    failure: Exception | None = None
    if is_main:
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        except OSError as error:
            failure = error
    barrier()
    try:
        if failure is None:
            yield draft
    # torch reports a failed write as RuntimeError, safetensors as its own; both come without an errno.
    except (OSError, SafetensorError, RuntimeError) as error:
        failure = error
    failures = _of_all(failure)
    if not failures and is_main:
        try:
            _finish(draft, target)
        except OSError as error:
            failure = error
    failures = failures or _of_all(failure)
    if failures:
        if is_main:
            shutil.rmtree(draft, ignore_errors=True)
        raise UserError(
            f"can't write {target}: {failures[0]}. What was saved before is untouched; free space and run again."
        )


def _of_all(failure: Exception | None) -> list[str]:
    """The failures of all processes, in words. Collective."""
    found = gather_json(None if failure is None else f"{failure} (on {host_name()})")
    return [text for text in found if text]


def _finish(draft: Path, target: Path) -> None:
    files = sorted(p for p in draft.rglob("*") if p.is_file())
    manifest = {str(p.relative_to(draft)): {"bytes": p.stat().st_size, "sha256": sha256(p)} for p in files}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in [*files, draft / MANIFEST, *{p.parent for p in files}, draft]:
        _flush(path)
    old = target.parent / f"{OLD}{target.name}"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    try:
        draft.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    _flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def prune(save_path: str | Path, keep: int, written: Path) -> None:
    """Delete all but the newest `keep` checkpoints up to `written`, which was written just now and so is whole.

    Those with missing files or wrong sizes don't count among the `keep`. Later ones, which a run leaves when it goes on from
    an earlier one, are no business of it: they are overwritten, or deleted once they are old.
    """
    up_to_now = [c for c in list_checkpoints(save_path) if _order(c) <= _order(written)]
    kept = [c for c in up_to_now if c == written or _has_all_bytes(c)][-max(1, keep) :]
    for old in up_to_now:
        if old not in kept:
            shutil.rmtree(old)


def _has_all_bytes(checkpoint: Path) -> bool:
    """Whether every file has the size in the manifest: quick, and blind for what changed within."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        return all((checkpoint / name).stat().st_size == entry["bytes"] for name, entry in manifest.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def save_tensors(state: Any, path: Path) -> None:
    """Write nested containers of tensors and plain values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)


def load_tensors(path: Path) -> Any:
    """Read what `save_tensors` wrote; never unpickles code."""
    return torch.load(path, map_location="cpu", weights_only=True)


def save_json(state: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(state, indent=1))


def load_json(path: Path) -> Any:
    return json.loads(path.read_text())


def random_state() -> dict[str, torch.Tensor]:
    """Random state of this process: CPU and, where there is one, its GPU."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def export(target: Path, write: Callable[[Path], None], is_main: bool) -> None:
    """Write a folder such as `actor/modeling` atomically: rank 0 calls `write(folder)`. Collective."""
    with atomic_folder(target, is_main) as draft:
        if is_main:
            write(draft)
