"""One session of a run: its process, folder and console, and the checkpoint that it goes on from.

A run that is resumed has several sessions. A session is opened before anything is loaded, and compares what all processes must have
in common first, so that a difference is an error at once and not a hang or a wrong model hours later.
"""

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
from rlvr.boost.consistency import check_same, versions, weights_digest
from rlvr.boost.health import enter_phase
from rlvr.boost.plugins import check_plugin
from rlvr.boost.process import ProcessInfo
from rlvr.config import Config, RewardTrainingConfig, SFTConfig, to_dict
from rlvr.config.layers import settings_of_model
from rlvr.config.presets import Settings, find_preset
from rlvr.config.secrets import redacted
from rlvr.memory.limit import fit_memory
from rlvr.run.folder import OpenedFolder, finish, open_folder, write_config, write_environment
from rlvr.scorers.build import describe_rewards
from rlvr.tracking.terminal import Terminal
from rlvr.trainer.base import BaseTrainer
from rlvr.validate.ppo import BatchPlan

AnyConfig = Config | SFTConfig | RewardTrainingConfig


def join(config: AnyConfig) -> ProcessInfo:
    """Join the process group, and check that the plugin runs here and that all processes have the same settings and versions.

    Raises:
        UserError: the plugin can't run here, or settings or versions differ; names the ranks.
    """
    process = processes.start(config.train.seed, config.train.num_threads, config.parallel.dist_timeout)
    check_same_settings(to_dict(config), "Give the same flags and the same --config file on all machines.")
    check_plugin(config.parallel, process.device)
    return process


def check_same_settings(settings: Mapping[str, Any], remedy: str) -> None:
    """Check that all processes have the same versions and settings. Collective, and the first thing that they do together.

    Raises:
        UserError: they differ; names the ranks.
    """
    disable_progress_bar()  # transformers' own bars, one for each file saved
    enter_phase("start")
    check_same("versions", versions(), "Install the same on all machines.")
    check_same("settings", settings, remedy)


def check_same_start(data: Mapping[str, Any], weights: Mapping[str, torch.nn.Module | None]) -> None:
    """Check that all processes have the same data and start from the same weights. Collective; before weights are sharded.

    Args:
        data: digests of the data, and of the reward functions.
        weights: role -> model; None for a role that the run does not have.

    Raises:
        UserError: they differ; names the ranks.
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
    """The parts of a run that come before its model and data. A context: while it is open, its folder is this run's alone.

    Attributes:
        process: this process's rank and device.
        console: prints on rank 0 only.
        opened: the run's folder.
    """

    process: ProcessInfo
    console: Console
    opened: OpenedFolder

    @classmethod
    def open(cls, config: AnyConfig, process: ProcessInfo) -> "Session":
        """Cut passes to `--memory_limit`, prepare the run's folder and write its settings there. Collective.

        Raises:
            UserError: the folder can't be written, or holds another run; or the run needs more memory than it may take.
        """
        console = Terminal(quiet=not process.is_main)
        cut = fit_memory(config, process.world_size, process.device)
        opened = open_folder(config.ckpt, process.is_main, partial(_warn, console))
        if process.is_main:
            write_config(config, opened.path)
            write_environment(opened.path, process.device.type, process.world_size)
        session = cls(process, console, opened)
        if cut is not None:
            session.note(cut)
        return session

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.opened.path

    @property
    def checkpoint(self) -> Path | None:
        """The one to go on from; None = start at the beginning."""
        return self.opened.checkpoint

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        self.opened.close(failed=kind is not None)

    def note(self, text: str) -> None:
        """Print a note that the user may want to know of."""
        self.say(f"[yellow]note:[/] {escape(text)}")

    def say(self, text: str) -> None:
        """Print a line; only its own markup is coloured."""
        self.console.print(text, highlight=False, soft_wrap=True)

    def ready(self, trainer: BaseTrainer, resume: bool) -> None:
        """Load the checkpoint if there is one, and open the file of metrics.

        Raises:
            UserError: the checkpoint is damaged or belongs to another run.
        """
        if self.checkpoint is not None:
            trainer.load_checkpoint(self.checkpoint)
            self.console.print(f"going on from {escape(str(self.checkpoint))} ({trainer.place})")
        elif resume:
            self.console.print(f"no checkpoint under {escape(str(self.folder))} yet: starting from the beginning")
        trainer.write_metrics(self.folder, resumed=self.checkpoint is not None)

    def track(self, trainer: BaseTrainer, config: AnyConfig) -> None:
        """Send the trainer's metrics to the trackers that the settings name.

        Raises:
            UserError: a tracker can't be started.
        """
        log = config.log
        trainer.track(log, project=log.tracker_project, name=log.tracker_run, config=redacted(to_dict(config)))

    def finish(self, config: AnyConfig) -> None:
        """Write the model card, and upload the model if that was asked for.

        Raises:
            UserError: the model was not uploaded; says where it is and how to upload it later.
        """
        if self.process.is_main:
            finish(self.folder, config.ckpt, self.say)


def _warn(console: Console, text: str) -> None:
    console.print(f"[bold yellow]warning:[/] {escape(text)}", highlight=False, soft_wrap=True)


def print_header(session: Session, config: Config, plan: BatchPlan, where: str) -> None:
    """Print the plan of the run. `where` names machines, processes and precision."""
    sources = [redacted(config.data.prompt_csv_url)] if config.data.prompt_csv_url else config.data.prompt_dataset
    session.say(
        f"[bold]rlvr[/]: {config.algo.estimator} on {escape(', '.join(sources))} with {escape(describe_rewards(config))}; "
        f"model {escape(config.model.pretrain)}; {where}"
    )
    t = config.train
    session.say(
        f"{plan.num_episodes} episodes x {plan.samples_per_episode} responses, {t.num_update_steps} pass(es) of "
        f"{plan.steps_per_epoch} optimizer steps: {plan.total_steps} steps in all; run folder {escape(str(session.folder))}"
    )
    tree = to_dict(config)
    if config.algo.preset:
        preset = find_preset(config.algo.preset)
        session.say(f"preset [bold]{config.algo.preset}[/] ({preset.paper}): " + _in_effect(tree, preset.settings))
    if own := settings_of_model(config):
        in_effect = _in_effect(tree, own)
        session.say(f"[dim]{config.model.pretrain} brings its own settings (flags override them): {in_effect}[/]")
    if t.warmup_steps is not None and t.warmup_steps >= plan.actor_steps:
        session.console.print(
            f"[yellow]warning:[/] a warm-up of {t.warmup_steps} steps is longer than the actor's {plan.actor_steps}: its learning rate "
            "never reaches --lr. Give fewer --warmup_steps, or more --num_episodes."
        )
    if config.rollout.top_k or config.rollout.top_p < 1:
        session.console.print(
            "[yellow]warning:[/] --top_k and --top_p cut the distribution that responses are sampled from, while logprobs "
            "are those of the whole one: ratios are biased. Leave them off unless you know why."
        )


def _in_effect(tree: dict[str, Any], layer: Settings) -> str:
    """The present values of the settings that a layer sets, each with the layer's own value where another overrode it."""
    parts = []
    for section, values in layer.items():
        for name, said in values.items():
            now = tree[section][name]
            parts.append(f"{name} {_plain(now)}" + ("" if now == said else f" (not {_plain(said)})"))
    return ", ".join(parts)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
