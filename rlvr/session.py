"""One session of a run: its process, folder and console, and the checkpoint that it goes on from."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from transformers.utils.logging import disable_progress_bar

from rlvr.boost import process as processes
from rlvr.boost.agreement import check_same, versions, weights_digest
from rlvr.boost.phases import board
from rlvr.boost.plugins import check_plugin
from rlvr.boost.process import ProcessInfo
from rlvr.config import Config, RewardTrainingConfig, SFTConfig, to_dict
from rlvr.finish import finish
from rlvr.run_folder import open_folder, write_config, write_environment
from rlvr.trackers.make import Wanted
from rlvr.trainer.base import BaseTrainer

AnyConfig = Config | SFTConfig | RewardTrainingConfig


def join(config: AnyConfig) -> ProcessInfo:
    """Join the process group; see that the plugin runs here and that all processes have the same settings and versions.

    Raises:
        UserError: it does not, or they have not.
    """
    process = processes.start(config.train.seed, config.train.num_threads, config.parallel.dist_timeout)
    check_alike(to_dict(config), "Give the same flags and the same --config file on all machines.")
    check_plugin(config.parallel, process.device)
    return process


def check_alike(settings: Mapping[str, Any], remedy: str) -> None:
    """See that all processes have the same versions and settings. Collective; the first thing that they do together.

    Raises:
        UserError: they have not; names the ranks.
    """
    disable_progress_bar()  # transformers' own bars, one for each file saved
    board.enter("start")
    check_same("versions", versions(), "Install the same on all machines.")
    check_same("settings", settings, remedy)


def check_same_start(data: Mapping[str, Any], weights: Mapping[str, torch.nn.Module | None]) -> None:
    """See that all processes have the same data and start from the same weights. Collective; before weights are sharded.

    Args:
        data: digests of what is learned from, and of the code that judges it.
        weights: role -> model; None where there is no such role.

    Raises:
        UserError: they have not; names the ranks.
    """
    check_same("data and rewards", data, "Give all machines the same files.")
    digests = {
        role: weights_digest((name, tensor) for name, tensor in model.state_dict().items())
        for role, model in weights.items()
        if model is not None
    }
    check_same(
        "starting weights",
        digests,
        "Give all machines the same files. (The built-in model is trained on each machine, and processors round "
        "differently: copy one machine's cache folder to the others, see RLVR_CACHE in docs/multi_node.md.)",
    )


@dataclass(frozen=True)
class Session:
    """What a run has before its model and data.

    Attributes:
        process: where this process stands.
        console: prints on rank 0 only.
        folder: the run's.
        checkpoint: where to go on; None = at the beginning.
    """

    process: ProcessInfo
    console: Console
    folder: Path
    checkpoint: Path | None

    @classmethod
    def open(cls, config: AnyConfig, process: ProcessInfo) -> "Session":
        """Make the run's folder ready and write its settings there. Collective.

        Raises:
            UserError: it can't be written, or holds another run.
        """
        console = Console(stderr=False, quiet=not process.is_main)
        folder, checkpoint = open_folder(config.ckpt, process.is_main, partial(_warn, console))
        if process.is_main:
            write_config(config, folder)
            write_environment(folder, process.device.type, process.world_size)
        return cls(process, console, folder, checkpoint)

    def note(self, text: str) -> None:
        """Tell of something that the user may want to know."""
        self.say(f"[yellow]note:[/] {text}")

    def say(self, text: str) -> None:
        """Print a line without colouring what it holds."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def ready(self, trainer: BaseTrainer, resume: bool) -> None:
        """Load the checkpoint, if there is one, and begin the file of metrics, or go on with it.

        Raises:
            UserError: the checkpoint is damaged or belongs to another run.
        """
        if self.checkpoint is not None:
            trainer.load_checkpoint(self.checkpoint)
            self.console.print(f"going on from {self.checkpoint} ({trainer.place})")
        elif resume:
            self.console.print(f"no checkpoint under {self.folder} yet: starting from the beginning")
        trainer.write_metrics(self.folder, resumed=self.checkpoint is not None)

    def track(self, trainer: BaseTrainer, config: AnyConfig) -> None:
        """Send the trainer's metrics to the trackers that the settings name.

        Raises:
            UserError: one can't be started.
        """
        log = config.log
        trainer.track(Wanted.of(log), project=log.tracker_project, name=log.tracker_run, config=to_dict(config))

    def finish(self, config: AnyConfig) -> None:
        """Write the card of what was saved, and upload it if that was asked for.

        Raises:
            UserError: it was not uploaded; says where it lies and how to upload it later.
        """
        if self.process.is_main:
            finish(self.folder, config.ckpt, self.say)


def _warn(console: Console, text: str) -> None:
    console.print(f"[bold yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)
