"""`JournalKeeper`: writes the journal of a run while it trains (`--journal`)."""

import os
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr.boost.consistency import versions
from rlvr.journal.journal import Digests, Journal, StepInfo
from rlvr.trainer.callbacks import Callback

if TYPE_CHECKING:
    from rlvr.experience.maker import Collected
    from rlvr.trainer.online import OnlineTrainer


class JournalKeeper(Callback):
    """Keeps what each episode learns from. In every process: each keeps its own buffer, and all take part in digests.

    Args:
        run: the run's folder.
        keep: the newest steps that stay.
    """

    def __init__(self, run: Path, keep: int) -> None:
        self.journal, self.keep = Journal(run), keep
        self._weights: Digests | None = None  # as the last episode left them

    def on_make_experience_end(self, trainer: "OnlineTrainer", collected: "Collected") -> None:
        p = trainer.progress
        self.journal.write_samples(p.episode + 1, trainer.rank, p.collect_step, collected.samples, collected.results)

    def on_learn_epoch_start(self, trainer: "OnlineTrainer", epoch: int) -> None:
        p = trainer.progress
        if epoch or p.mini_batch:  # learning goes on; the journal has what it began with
            return
        step = p.episode + 1
        self.journal.write_experience(step, trainer.rank, trainer.buffer.items, trainer.meter.state_dict())
        before = self._weights or digests(trainer)
        if trainer.is_main:
            self.journal.write_info(
                StepInfo(
                    step, trainer.world_size, trainer.learner.replicas, trainer.kl_coef, before, made_with(trainer)
                )
            )

    def on_episode_end(self, trainer: "OnlineTrainer", episode: int, metrics: Mapping[str, float]) -> None:
        self._weights = digests(trainer)
        if trainer.is_main:
            self.journal.finish(episode + 1, self._weights, metrics)
            self.journal.prune(self.keep, episode + 1)


def digests(trainer: "OnlineTrainer") -> Digests:
    """Of each role's weights, as precise as they are. Collective."""
    return {name: role.digest() for name, role in trainer.checkpointer.roles.items()}


def made_with(trainer: "OnlineTrainer") -> dict[str, str]:
    """Everything besides settings and data that may change a bit."""
    parallel = trainer.config.parallel
    return versions() | {
        "machine": f"{platform.machine()} {_processor()}",
        "device": trainer.learner.device.type,
        "plugin": parallel.plugin,
        "mixed_precision": parallel.mixed_precision,
        "threads": os.environ.get("OMP_NUM_THREADS", ""),
    }


def _processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines: Sequence[str] = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
