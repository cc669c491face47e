"""The folder of a run: who may write into it, what lies there, where to go on."""

import json
import os
import platform
import shlex
import sys
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from rlvr.checkpoint import list_checkpoints
from rlvr.config import CheckpointConfig, to_dict
from rlvr.errors import UserError
from rlvr.metrics import gather_json

# Settings that may differ between a run and its continuation: they don't change what is learned.
_FREE = {
    "ckpt": ("save_path", "resume", "keep_checkpoints", "save_interval"),
    "log": ("log_dir", "use_wandb", "num_sample_generations", "progress", "log_interval"),
    "model": ("trust_remote_code",),
    "eval": ("eval_interval", "eval_samples", "eval_temperature"),
    "data": ("eval_dataset",),
    # A checkpoint holds whole tensors, which any plugin takes up; only rounding differs.
    "parallel": (
        *("plugin", "zero_cpu_offload", "zero_stage", "tp", "pp", "sp", "sp_mode"),
        "enable_sequence_parallelism",
    ),
    "template": ("template_check",),
}


def choose_folder(config: CheckpointConfig) -> Path:
    """`--save_path`, or a new folder under runs/ named by the time."""
    return Path(config.save_path or f"runs/{datetime.now():%Y%m%d-%H%M%S}")


def prepare_folder(folder: Path, resume: bool) -> Path | None:
    """Make the folder and find the checkpoint to resume from, if there is one.

    Raises:
        UserError: it can't be written, or holds another run and `--resume` was not given.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"--save_path {folder} can't be written: {error.strerror}; give another") from None
    checkpoints = list_checkpoints(folder)
    results = ("metrics.jsonl", "actor", "reward_model")
    if not resume and (checkpoints or any((folder / name).exists() for name in results)):
        raise UserError(f"--save_path {folder} holds another run: give --resume to go on with it, or another folder")
    return checkpoints[-1] if checkpoints else None


def open_folder(config: CheckpointConfig, is_main: bool) -> tuple[Path, Path | None]:
    """The run's folder, made ready, and the checkpoint to go on from; the same in all processes. Collective.

    Raises:
        UserError: as `prepare_folder`.
    """
    # Rank 0 chooses: the name may hold the time, which differs between processes.
    folder = Path(gather_json(str(choose_folder(config)))[0])
    checkpoint = prepare_folder(folder, config.resume) if is_main else None
    shared = gather_json(str(checkpoint) if checkpoint else None)[0]
    return folder, Path(shared) if shared else None


def write_config(config: Any, folder: Path) -> None:
    """Save the run's settings; `--config FOLDER/config.yaml` gives them back."""
    text = yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)
    (folder / "config.yaml").write_text(text, encoding="utf-8")


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
    (folder / "environment.json").write_text(json.dumps(found) + "\n", encoding="utf-8")


def run_state(config: Any) -> dict[str, Any]:
    """The settings that every session of one run must share."""
    tree = to_dict(config)
    for section, names in _FREE.items():
        for name in names:
            tree.get(section, {}).pop(name, None)
    return tree
