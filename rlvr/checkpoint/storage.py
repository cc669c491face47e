"""Checkpoints on disk: folders that are whole or not there.

    SAVE_PATH/
      actor/modeling, critic/modeling     the result, as `from_pretrained` reads it
      actor/adapter, critic/adapter       with LoRA: the adapter alone, as peft's `PeftModel.from_pretrained` reads it
      checkpoints/step-000012/            12 = finished episodes; "-3" behind it = safe points into the next one
        manifest.json                     size and SHA-256 of every other file; written last
        state.json                        progress, sampler positions, KL coefficient, identity of the run
        actor/modeling, critic/modeling   weights (with LoRA: actor/adapter, critic/adapter)
        actor/training.safetensors, ...   optimizer, master weights and schedule
        rank-0.safetensors, ...           random state and buffer of each process

`rlvr.checkpoint.checkpointer` decides what goes into a checkpoint and when; the run's folder (`rlvr.run.folder`) asks here for
the newest whole one. A checkpoint is written into a hidden folder beside its place, flushed to disk, and renamed: a process that
is killed at any moment leaves the whole checkpoint or none. Digests find what a disk or a copy damaged later.

Left out on purpose: pickled objects. All tensors are in safetensors files, and everything else is JSON, so a checkpoint from
elsewhere can't run code. Sharded files are left out too: rank 0 writes whole weights, which every plugin and any number of
processes can resume from.
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open

from rlvr.boost.process import barrier, gather_json, group_device, host_name, local_device
from rlvr.boost.tensor_files import Unreadable, read_tensors, to_bytes, write_tensors
from rlvr.config.files import read_json
from rlvr.core.masked import not_finite
from rlvr.errors import UserError

MANIFEST = "manifest.json"
FOLDER = "checkpoints"
TRAINING = "training.safetensors"
WEIGHTS = "weights.safetensors"
# Hidden, and no match for _NAME: nothing that a killed process leaves behind is taken for a checkpoint.
DRAFT, OLD = ".writing-", ".old-"
_NAME = re.compile(r"step-(\d{6})(?:-(\d+))?$")


# Names.


def checkpoint_name(episode: int, safe_point: int = 0) -> str:
    """Folder name of a checkpoint after `episode` episodes and `safe_point` safe points of the next one."""
    return f"step-{episode:06d}" + (f"-{safe_point}" if safe_point else "")


def list_checkpoints(save_path: str | Path) -> list[Path]:
    """The checkpoints under a run's folder, oldest first."""
    folder = Path(save_path) / FOLDER
    found = [p for p in folder.iterdir() if _NAME.match(p.name)] if folder.is_dir() else []
    return sorted(found, key=place_of)


def place_of(path: Path) -> tuple[int, int]:
    """The episodes that were finished when a checkpoint was written, and the safe points of the next."""
    match = _NAME.match(path.name)
    assert match
    return int(match[1]), int(match[2] or 0)


# Writing a folder that is whole or not there.


@contextmanager
def atomic_folder(target: Path, is_main: bool = True) -> Iterator[Path]:
    """A hidden folder to write into, which becomes `target` once all ranks have left the block without error. Collective.

    An older `target` is replaced. On failure nothing is left behind and `target` stays as it was.

    Raises:
        UserError: in every rank, if any of them could not write.
    """
    draft = target.parent / f"{DRAFT}{target.name}"
    # No rank raises on its own: the others would wait for it in the next collective (pitfall A24). Failures are kept, told to
    # all, and raised everywhere.
    failure: Exception | None = None
    if is_main:
        try:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        except OSError as error:
            failure = error
    barrier()  # the draft is there before any rank writes into it
    try:
        if failure is None:
            yield draft
    # torch reports a failed write as RuntimeError, safetensors as its own; both come without an errno.
    except (OSError, SafetensorError, RuntimeError) as error:
        failure = error
    except BaseException:  # none of writing's: the caller's own affair
        if is_main:
            shutil.rmtree(draft, ignore_errors=True)
        raise
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
    """Write the manifest, flush everything to disk, and put the draft in the place of `target`."""
    files = sorted(p for p in draft.rglob("*") if p.is_file())
    manifest = {str(p.relative_to(draft)): {"bytes": p.stat().st_size, "sha256": sha256(p)} for p in files}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1))
    # A rename may reach the disk before the contents: these first, and folders too, whose entries are contents.
    for path in [*files, draft / MANIFEST, *{p.parent for p in files}, draft]:
        _flush(path)
    old = target.parent / f"{OLD}{target.name}"
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)  # a folder can't be renamed over another that holds files
    try:
        draft.rename(target)
    except OSError:
        if old.exists():
            old.rename(target)
        raise
    _flush(target.parent)  # the rename itself
    if old.is_symlink():
        old.unlink()
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


def export(target: Path, write: Callable[[Path], None], is_main: bool) -> None:
    """Write a folder such as `actor` atomically: the main process calls `write(folder)`. Collective."""
    with atomic_folder(target, is_main) as draft:
        if is_main:
            write(draft)


# Which checkpoint is whole, and which are kept.


@dataclass(frozen=True)
class Choice:
    """The checkpoint to go on from.

    Attributes:
        checkpoint: the newest whole one; None if there are no checkpoints.
        warnings: for each newer one that is damaged, how.
    """

    checkpoint: Path | None
    warnings: tuple[str, ...] = ()


def newest_whole(save_path: str | Path) -> Choice:
    """The newest checkpoint of a run that is as it was written.

    Raises:
        UserError: there are checkpoints, and all are damaged; says how.
    """
    damaged: list[str] = []
    for checkpoint in reversed(list_checkpoints(save_path)):
        reason = damage(checkpoint)
        if reason is None:  # the newest are looked at first: usually one checkpoint is read
            return Choice(checkpoint, tuple(f"{what}; going on from {checkpoint.name}" for what in damaged))
        damaged.append(f"the checkpoint {checkpoint} is damaged: {reason}")
    if damaged:
        raise UserError("; ".join(damaged) + "; no other is whole: start anew with another --save_path")
    return Choice(None)


def damage(checkpoint: Path) -> str | None:
    """How the checkpoint differs from its manifest, or what in it is not finite; None if one can go on from it."""
    try:
        manifest = read_manifest(checkpoint)
        if not manifest:
            return f"{MANIFEST} names no file"
        for name, entry in manifest.items():
            path = checkpoint / name
            if not path.is_file():
                return f"{name} is missing"
            if path.stat().st_size != entry["bytes"]:
                return f"{name} has {path.stat().st_size} bytes instead of {entry['bytes']}"
            if sha256(path) != entry["sha256"]:
                return f"{name} has changed"
            if broken := not_finite(_tensors_of(path)):
                return f"in {name}, {broken} holds numbers that are not finite"
    except FileNotFoundError:
        return f"{MANIFEST} is missing"
    except SafetensorError as error:  # of a stranger's, whose manifest is right
        return f"{name} holds no tensors ({error})"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} can't be read"
    except OSError as error:
        return f"{Path(error.filename or checkpoint).name} can't be read: {error.strerror}"
    return None


def _tensors_of(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a file of a role, read one after the other."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            yield from ((name, file.get_tensor(name)) for name in file.keys())  # noqa: SIM118  it is no mapping


def tensors_in(state: Any, place: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in nested containers, with the way to each."""
    if isinstance(state, torch.Tensor):
        yield place, state
    elif isinstance(state, Mapping | list | tuple):
        for key, held in state.items() if isinstance(state, Mapping) else enumerate(state):
            yield from tensors_in(held, f"{place}/{key}" if place else str(key))


def read_manifest(checkpoint: Path) -> dict[str, dict[str, object]]:
    """File name -> its size and digest.

    Raises:
        OSError, ValueError, AttributeError: it can't be read, or is no manifest.
    """
    manifest = read_json(checkpoint / MANIFEST)
    return dict(manifest.items())


def verify(checkpoint: Path) -> None:
    """Compare every file with the manifest, in every process with its own view of the disk. Collective: all raise if one must.

    Raises:
        UserError: a file is missing or damaged (names it, and the newest whole checkpoint if there is one), or some machines
            don't see the checkpoint (names them).
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
    """The message for a checkpoint that rank 0 sees whole and other ranks do not."""
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
    """Remove what a killed process left half done: drafts go, and a folder that was being replaced is put back."""
    for folder in (save_path, save_path / FOLDER):
        for old in folder.glob(f"{OLD}*"):
            target = folder / old.name.removeprefix(OLD)
            if target.exists():  # killed after the new folder took its place, and not before
                _remove(old)
            else:
                old.rename(target)
        for draft in folder.glob(f"{DRAFT}*"):
            _remove(draft)


def _remove(path: Path) -> None:
    """Remove a folder; of one that lies elsewhere, only the link to it."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


def prune(save_path: str | Path, keep: int, written: Path) -> None:
    """Delete all but the newest `keep` checkpoints up to `written`, which was written just now and so is whole.

    Those with missing files or wrong sizes don't count among the `keep`: damaged ones must not push out the last that can be
    resumed from. Later ones than `written`, which are there after a run went on from an earlier one, stay: the run overwrites
    them, or deletes them once they are old.
    """
    up_to_now = [c for c in list_checkpoints(save_path) if place_of(c) <= place_of(written)]
    kept = [c for c in up_to_now if c == written or _has_all_bytes(c)][-max(1, keep) :]
    for old in up_to_now:
        if old not in kept:
            _remove(old)


def _has_all_bytes(checkpoint: Path) -> bool:
    """True if every file has the size in the manifest. Quick: no digest is computed, so a changed byte goes unseen."""
    try:
        manifest = read_manifest(checkpoint)
        return all((checkpoint / name).stat().st_size == entry["bytes"] for name, entry in manifest.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


# The contents of a checkpoint.


def save_tensors(state: Any, path: Path) -> None:
    """Write nested containers of tensors and plain values."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(state, path)


def load_tensors(path: Path) -> Any:
    """Read what `save_tensors` wrote.

    Raises:
        UserError: something else is in the file.
    """
    try:
        return read_tensors(path)
    except Unreadable as error:
        raise UserError(f"{path} is no part of a checkpoint: {error}") from None


def save_json(state: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(state, indent=1))


def random_state() -> dict[str, torch.Tensor]:
    """Random state of this process: of the CPU and, if it has one, of its accelerator."""
    state, device = {"cpu": torch.get_rng_state()}, local_device()
    if device.type != "cpu":
        state[device.type] = torch.get_device_module(device).get_rng_state(device)
    return state


def set_random_state(state: dict[str, torch.Tensor]) -> None:
    """Restore what `random_state` returned, as far as this process has the devices."""
    torch.set_rng_state(state["cpu"])
    device = local_device()
    if device.type != "cpu" and device.type in state:
        torch.get_device_module(device).set_rng_state(state[device.type], device)


# Each process's own state. Rank 0 writes them all, so that only resuming needs storage that the machines share.


def gather_states(state: Any) -> list[bytes]:
    """Every process's state, as a file holds it, on rank 0; nothing elsewhere. Collective.

    Args:
        state: nested containers of tensors and plain values.
    """
    own = to_bytes(state)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [own]
    # Bytes, as a file holds them: processes have buffers of different sizes, and rank 0 need not read what it writes.
    device = group_device()
    if dist.get_rank() == 0:
        return [own, *(_receive(rank, device) for rank in range(1, dist.get_world_size()))]
    data = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device)
    dist.send(torch.tensor([len(data)], device=device), 0)  # the size first, for rank 0 to make room
    dist.send(data, 0)
    return []


def _receive(rank: int, device: torch.device) -> bytes:
    size = torch.zeros(1, dtype=torch.long, device=device)
    dist.recv(size, rank)
    data = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.recv(data, rank)
    return data.cpu().numpy().tobytes()


def write_states(states: Sequence[bytes], folder: Path) -> None:
    """Write what `gather_states` gave."""
    for rank, state in enumerate(states):
        (folder / f"rank-{rank}.safetensors").write_bytes(state)


def read_state(folder: Path, rank: int) -> Any:
    """The state of one process."""
    return load_tensors(folder / f"rank-{rank}.safetensors")
