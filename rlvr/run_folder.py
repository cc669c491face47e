"""The folder of a run: who may write into it, what lies there, where to go on."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from rlvr.checkpoint import list_checkpoints
from rlvr.checkpoint_check import Choice, clear_up, newest_whole
from rlvr.config import CheckpointConfig, to_dict
from rlvr.errors import UserError
from rlvr.metrics import gather_json
from rlvr.tracking import replace_text

# Settings that may differ between a run and its continuation: they don't change what is learned.
_FREE = {
    "ckpt": (
        *("save_path", "resume", "keep_checkpoints", "save_interval"),
        *("push_to_hub", "hub_private", "hub_revision"),
    ),
    "log": (
        *("log_dir", "use_wandb", "use_mlflow", "use_trackio", "tracker_project", "tracker_run"),
        *("num_sample_generations", "progress", "log_interval"),
    ),
    "model": ("trust_remote_code",),
    "eval": ("eval_interval", "eval_samples", "eval_generations", "eval_temperature"),
    "data": ("eval_dataset", "eval_datasets"),
    # A checkpoint holds whole tensors, which any plugin takes up; only rounding differs.
    "parallel": (
        *("plugin", "zero_cpu_offload", "zero_stage", "tp", "pp", "sp", "sp_mode"),
        *("enable_sequence_parallelism", "dist_timeout"),
    ),
    "template": ("template_check",),
    "ray": (
        "ray", "ray_address", "num_actor_nodes", "num_critic_nodes", "num_initial_nodes", "num_reward_nodes", "num_rollout_nodes",
        "num_gpus_per_node", "num_gpus_per_process", "num_cpus_per_node", "min_reward_workers", "max_reward_workers",
    ),
}  # fmt: skip


def choose_folder(config: CheckpointConfig) -> Path:
    """`--save_path`, or a new folder under runs/ named by the time."""
    return Path(config.save_path or f"runs/{datetime.now():%Y%m%d-%H%M%S}")


def prepare_folder(folder: Path, resume: bool) -> Choice:
    """Make the folder and find the checkpoint to resume from, if there is one.

    Raises:
        UserError: it can't be written, holds another run and `--resume` was not given, or holds damaged checkpoints only.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
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
        warn: gets, on rank 0, what is wrong with each newer checkpoint that was passed over.

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
    """Save what the run is made with: versions, machine, command. A later session of the run writes its own."""
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


def run_state(config: Any) -> dict[str, Any]:
    """The settings that every session of one run must share."""
    tree = to_dict(config)
    for section, names in _FREE.items():
        for name in names:
            tree.get(section, {}).pop(name, None)
    return tree
