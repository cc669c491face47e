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

from rlvr.boost.process import any_rank, barrier
from rlvr.errors import UserError

MANIFEST = "manifest.json"
FOLDER = "checkpoints"
_NAME = re.compile(r"step-(\d{6})(?:-(\d+))?$")
_CPU = torch.device("cpu")


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
    draft = target.parent / f".writing-{target.name}"
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
    if not any_rank(failure is not None, _group_device()) and is_main:
        try:
            _finish(draft, target)
        except OSError as error:
            failure = error
    if any_rank(failure is not None, _group_device()):
        if is_main:
            shutil.rmtree(draft, ignore_errors=True)
        reason = f": {failure}" if failure else " in another process"
        raise UserError(f"can't write {target}{reason}. What was saved before is untouched; free space and run again.")
    barrier()


def _group_device() -> torch.device:
    import torch.distributed as dist

    nccl = dist.is_initialized() and dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else _CPU


def _finish(draft: Path, target: Path) -> None:
    files = sorted(p for p in draft.rglob("*") if p.is_file())
    manifest = {str(p.relative_to(draft)): {"bytes": p.stat().st_size, "sha256": _sha256(p)} for p in files}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))
    for path in [*files, draft / MANIFEST, *{p.parent for p in files}, draft]:
        _flush(path)
    old = target.parent / f".old-{target.name}"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    draft.rename(target)
    _flush(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(checkpoint: Path) -> None:
    """Compare every file with the manifest.

    Raises:
        UserError: names the file that is missing or damaged, and the newest checkpoint that is whole, if there is one.
    """
    reason = _damage(checkpoint)
    if reason is None:
        return
    others = [c for c in reversed(list_checkpoints(checkpoint.parent.parent)) if c != checkpoint and _damage(c) is None]
    remedy = (
        f"delete {checkpoint} to go on from {others[0].name}, which is whole"
        if others
        else "there is no other whole checkpoint; start anew with another --save_path"
    )
    raise UserError(f"the checkpoint {checkpoint} is damaged: {reason}; {remedy}")


def _damage(checkpoint: Path) -> str | None:
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except (json.JSONDecodeError, UnicodeDecodeError):
        return f"{MANIFEST} can't be read"
    for name, entry in manifest.items():
        path = checkpoint / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != entry["bytes"]:
            return f"{name} has {path.stat().st_size} bytes instead of {entry['bytes']}"
        if _sha256(path) != entry["sha256"]:
            return f"{name} has changed"
    return None


def prune(save_path: str | Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints."""
    for old in list_checkpoints(save_path)[: -max(1, keep)]:
        shutil.rmtree(old)


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
