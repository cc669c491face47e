"""The folder of a run, from its opening to the upload of its result.

Before training it is chosen, cleared of what a killed process left, and given the settings and the environment; the checkpoint to
go on from is found. After training the model card is written into it, and the model uploaded if that was asked for.
"""

import json
import os
import platform
import shlex
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any

import yaml
from filelock import FileLock, Timeout

from rlvr.boost.process import gather_json
from rlvr.checkpoint.hub import Part, upload
from rlvr.checkpoint.storage import Choice, clear_up, list_checkpoints, newest_whole
from rlvr.config import CheckpointConfig, to_dict
from rlvr.config.catalog import values_of
from rlvr.config.fields import FREE
from rlvr.config.layers import AnyConfig
from rlvr.config.secrets import redacted
from rlvr.errors import UserError
from rlvr.models.saved import HOLDER, trained_model
from rlvr.report.card import write_card
from rlvr.tracking.tracker import replace_text
from rlvr.validate.common import target_of

PREDECESSOR_S = 15.0
"""How long a resumed run waits for one that was told to end."""


def choose_folder(config: CheckpointConfig) -> Path:
    """`--save_path`, or a new folder under runs/ named by the time."""
    return Path(config.save_path or f"runs/{datetime.now():%Y%m%d-%H%M%S}")


LOCK = ".lock"
_BEFORE_TRAINING = {LOCK, HOLDER, "config.yaml", "environment.json"}
"""Files that a run writes before it loads anything."""


class RunLock:
    """One run at a time writes to a folder: the lock is held from the opening of a run's folder to its `release`.

    The system gives it back when the process that holds it ends, however it ends. It holds between machines as far as their shared
    file system's locks do (NFS 4 does). Under torchrun rank 0 holds it: a rank that outlives its killed launcher still trains.

    Args:
        folder: of the run; exists.
        wait_s: how long to wait for one that is just ending.

    Raises:
        UserError: another process holds it; names the process, its machine, and since when.
        OSError: the folder can't be written.
    """

    def __init__(self, folder: Path, wait_s: float = 0.0) -> None:
        self._holder = folder / HOLDER
        self._lock = FileLock(folder / LOCK, thread_local=False)
        try:
            self._lock.acquire(timeout=wait_s)
        except Timeout:
            raise UserError(
                f"--save_path {folder} is in use by {self._describe_holder()}: two runs would overwrite each other's steps. End that "
                "one first, or give another folder"
            ) from None
        now = datetime.now().astimezone().isoformat(timespec="seconds")
        replace_text(self._holder, json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": now}) + "\n")

    def _describe_holder(self) -> str:
        try:
            said = json.loads(self._holder.read_text(encoding="utf-8"))
            return f"process {said['pid']} on {said['host']} since {said['since']}"
        except (OSError, ValueError, KeyError, TypeError):  # it is just being written, or was damaged
            return "another process"

    def release(self) -> None:
        """Let others have the folder."""
        self._holder.unlink(missing_ok=True)
        self._lock.release()


@dataclass(frozen=True)
class OpenedFolder:
    """The folder of a run that is about to begin.

    Attributes:
        path: the same in all processes.
        checkpoint: the one to go on from; None = start at the beginning.
        lock: held in the process that writes; None in the others.
        made: the folders that were made for this run, the innermost first; empty in processes that do not write.
    """

    path: Path
    checkpoint: Path | None
    lock: RunLock | None
    made: tuple[Path, ...] = ()

    def close(self, failed: bool = False) -> None:
        """Let others write there. If the run `failed` before it had anything to keep, leave no new folder behind."""
        if self.lock is None:
            return
        self.lock.release()
        if failed and self.made and {path.name for path in self.path.iterdir()} <= _BEFORE_TRAINING:
            for path in self.path.iterdir():
                path.unlink()
            with suppress(OSError):  # something else has come there since
                for folder in self.made:
                    folder.rmdir()


@dataclass(frozen=True)
class Prepared:
    """What `prepare_folder` found: the lock, which is held, the checkpoint to resume from, and the folders that it made."""

    lock: RunLock
    choice: Choice
    made: tuple[Path, ...]


def prepare_folder(folder: Path, resume: bool) -> Prepared:
    """Make the folder, take its lock, and find the checkpoint to resume from, if there is one.

    Raises:
        UserError: it can't be written, or another process writes there; it holds another run, and `--resume` was not given; or all
            its checkpoints are damaged.
    """
    with ExitStack() as unless_ready:
        made = tuple(path for path in (folder, *folder.parents) if not path.exists())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = RunLock(folder, PREDECESSOR_S if resume else 0.0)  # writes: better now than at the first checkpoint
            unless_ready.callback(lock.release)
            clear_up(folder)
            choice = _choose_checkpoint(folder, resume)
        except OSError as error:
            raise UserError(f"--save_path {folder} can't be written: {error.strerror}; give another") from None
        unless_ready.pop_all()
        return Prepared(lock, choice, made)


def _choose_checkpoint(folder: Path, resume: bool) -> Choice:
    results = ("metrics.jsonl", "actor", "reward_model")
    if not resume and (list_checkpoints(folder) or any((folder / name).exists() for name in results)):
        raise UserError(f"--save_path {folder} holds another run: give --resume to go on with it, or another folder")
    return newest_whole(folder) if resume else Choice(None)


def open_folder(config: CheckpointConfig, is_main: bool, warn: Callable[[str], None]) -> OpenedFolder:
    """The run's folder, made ready and locked, and the checkpoint to go on from; the same in all processes. Collective.

    Args:
        config: names the folder.
        is_main: true in the process that prepares it.
        warn: called there for each newer checkpoint that is damaged and was passed over.

    Raises:
        UserError: as `prepare_folder`; the same in all processes.
    """
    # Rank 0 chooses: the name may hold the time, which differs between processes.
    folder = Path(gather_json(str(choose_folder(config)))[0])
    prepared, choice, problem = None, Choice(None), None
    if is_main:
        try:
            prepared = prepare_folder(folder, config.resume)
            choice = prepared.choice
        except UserError as error:
            problem = str(error)
    # Its error is raised in every process, or the others would wait for it.
    problem, shared = gather_json([problem, str(choice.checkpoint) if choice.checkpoint else None])[0]
    if problem:
        raise UserError(problem)
    for text in choice.warnings:
        warn(text)
    checkpoint = Path(shared) if shared else None
    if prepared is None:
        return OpenedFolder(folder, checkpoint, None)
    return OpenedFolder(folder, checkpoint, prepared.lock, prepared.made)


def write_config(config: Any, folder: Path) -> None:
    """Save the run's settings; `--config FOLDER/config.yaml` gives them back, but for secrets.

    Raises:
        UserError: the file can't be written.
    """
    text = yaml.safe_dump(redacted(to_dict(config)), sort_keys=False, allow_unicode=True)
    replace_text(folder / "config.yaml", text)


def write_environment(folder: Path, device: str, processes: int) -> None:
    """Save versions, machine and command. Each session of a run overwrites those of the session before."""
    names = ("rlvr", "torch", "transformers", "colossalai", "peft")
    found = {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *redacted(sys.argv[1:])]),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "device": device,
        "processes": processes,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    replace_text(folder / "environment.json", json.dumps(found) + "\n")


def run_state(config: AnyConfig) -> dict[str, Any]:
    """The settings that all sessions of a run must share: all but secrets, and those whose fields are marked free on resume."""
    tree = redacted(to_dict(config))
    for flag, _ in values_of(config):
        if flag.on_resume is FREE:
            del tree[flag.section][flag.name]
    return tree


# After training.


def finish(folder: Path, ckpt: CheckpointConfig, say: Callable[[str], None]) -> None:
    """Write the model card, and upload the trained model if the settings name a repository. On rank 0.

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
