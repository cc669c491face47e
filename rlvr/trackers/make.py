"""From what a run asks for to the sinks that it gets."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rlvr.trackers.about import About
from rlvr.trackers.available import check_trackers
from rlvr.tracking import Sink


@dataclass(frozen=True)
class Wanted:
    """The trackers that a run asks for, by the names of their flags."""

    log_dir: str | None = None
    use_wandb: bool = False
    use_mlflow: bool = False
    use_trackio: bool = False

    @classmethod
    def of(cls, log: Any) -> "Wanted":
        """What the settings' section `log` asks for."""
        return cls(log.log_dir, log.use_wandb, log.use_mlflow, log.use_trackio)


def makers(wanted: Wanted, about: About) -> list[Callable[[], Sink]]:
    """What makes each sink; a tracker's package is imported only then.

    Raises:
        UserError: a package is missing.
    """
    check_trackers(wanted)
    made: list[Callable[[], Sink]] = []
    if wanted.log_dir:
        made.append(partial(_tensorboard, wanted.log_dir, about))
    if wanted.use_wandb:
        made.append(partial(_wandb, about))
    if wanted.use_mlflow:
        made.append(partial(_mlflow, about))
    if wanted.use_trackio:
        made.append(partial(_trackio, about))
    return made


def _tensorboard(log_dir: str, about: About) -> Sink:
    from rlvr.trackers.tensorboard import TensorBoardSink

    return TensorBoardSink(log_dir, about)


def _wandb(about: About) -> Sink:
    from rlvr.trackers.wandb import WandbSink

    return WandbSink(about)


def _mlflow(about: About) -> Sink:
    from rlvr.trackers.mlflow import MLflowSink

    return MLflowSink(about)


def _trackio(about: About) -> Sink:
    from rlvr.trackers.trackio import TrackioSink

    return TrackioSink(about)
