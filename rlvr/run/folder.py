"""The folder of a run, from its opening to the upload of its result.

Before training it is chosen, cleared of what a killed process left, and given the settings and the environment; the checkpoint to
go on from is found. After training the model card is written into it, and the model uploaded if that was asked for.
"""

import json
import os
import platform
import shlex
import sys
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from rlvr.boost.process import gather_json
from rlvr.checkpoint.hub import Part, upload
from rlvr.checkpoint.storage import Choice, clear_up, list_checkpoints, newest_whole
from rlvr.config import CheckpointConfig, to_dict
from rlvr.config.catalog import values_of
from rlvr.config.layers import AnyConfig
from rlvr.errors import UserError
from rlvr.models.saved import trained_model
from rlvr.report.card import write_card
from rlvr.tracking.tracker import replace_text
from rlvr.validate.common import target_of


def choose_folder(config: CheckpointConfig) -> Path:
    """`--save_path`, or a new folder under runs/ named by the time."""
    return Path(config.save_path or f"runs/{datetime.now():%Y%m%d-%H%M%S}")


def prepare_folder(folder: Path, resume: bool) -> Choice:
    """Make the folder and find the checkpoint to resume from, if there is one.

    Raises:
        UserError: it can't be written; it holds another run, and `--resume` was not given; or all its checkpoints are damaged.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"  # better now than at the first checkpoint
        probe.touch()
        probe.unlink()
        clear_up(folder)
    except OSError as error:
        raise UserError(f"--save_path {folder} can't be written: {error.strerror}; give another") from None
    results = ("metrics.jsonl", "actor", "reward_model")
    if not resume and (list_checkpoints(folder) or any((folder / name).exists() for name in results)):
        raise UserError(f"--save_path {folder} holds another run: give --resume to go on with it, or another folder")
    return newest_whole(folder) if resume else Choice(None)


def open_folder(config: CheckpointConfig, is_main: bool, warn: Callable[[str], None]) -> tuple[Path, Path | None]:
    """The run's folder, made ready, and the checkpoint to go on from; the same in all processes. Collective.

    Args:
        config: names the folder.
        is_main: true in the process that prepares it.
        warn: called there for each newer checkpoint that is damaged and was passed over.

    Raises:
        UserError: as `prepare_folder`; the same in all processes.
    """
    # Rank 0 chooses: the name may hold the time, which differs between processes.
    folder = Path(gather_json(str(choose_folder(config)))[0])
    choice, problem = Choice(None), None
    if is_main:
        try:
            choice = prepare_folder(folder, config.resume)
        except UserError as error:
            problem = str(error)
    # Its error is raised in every process, or the others would wait for it.
    problem, shared = gather_json([problem, str(choice.checkpoint) if choice.checkpoint else None])[0]
    if problem:
        raise UserError(problem)
    for text in choice.warnings:
        warn(text)
    return folder, Path(shared) if shared else None


def write_config(config: Any, folder: Path) -> None:
    """Save the run's settings; `--config FOLDER/config.yaml` gives them back.

    Raises:
        UserError: the file can't be written.
    """
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    replace_text(folder / "config.yaml", text)


def write_environment(folder: Path, device: str, processes: int) -> None:
    """Save versions, machine and command. Each session of a run overwrites those of the session before."""
    names = ("rlvr", "torch", "transformers", "colossalai", "peft")
    found = {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "python": platform.python_version(),
        **{name: version(name) for name in names},
        "device": device,
        "processes": processes,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
    replace_text(folder / "environment.json", json.dumps(found) + "\n")


def run_state(config: AnyConfig) -> dict[str, Any]:
    """The settings that all sessions of a run must share: all but those whose fields are marked free on resume."""
    tree = to_dict(config)
    for flag, _ in values_of(config):
        if flag.free_on_resume:
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
