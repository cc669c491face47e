"""One session of a run: its process, folder and console, and the checkpoint that it goes on from."""

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from transformers.utils.logging import disable_progress_bar

from rlvr.boost import process as processes
from rlvr.boost.plugins import check_plugin
from rlvr.boost.process import ProcessInfo
from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.run_folder import open_folder, write_config, write_environment
from rlvr.trainer.base import BaseTrainer

AnyConfig = Config | SFTConfig | RewardTrainingConfig


def join(config: AnyConfig) -> ProcessInfo:
    """Join the process group, and see that the plugin runs here.

    Raises:
        UserError: it does not.
    """
    disable_progress_bar()  # transformers' own bars, one for each file saved
    process = processes.start(config.train.seed, config.train.num_threads)
    check_plugin(config.parallel, process.device)
    return process


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
        folder, checkpoint = open_folder(config.ckpt, process.is_main)
        if process.is_main:
            write_config(config, folder)
            write_environment(folder, process.device.type, process.world_size)
        return cls(process, Console(stderr=False, quiet=not process.is_main), folder, checkpoint)

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
