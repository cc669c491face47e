"""Hooks into the training loops, and two callbacks that runs use.

Subclass `Callback`, override what you need, and give it to a trainer as `callbacks=[...]`. The live view (`rlvr.run.console`) is
one.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr.tracking.diagnosis import History

if TYPE_CHECKING:
    from rlvr.experience.experience import Experience
    from rlvr.experience.maker import Collected


class Callback:
    """Called by every trainer in every process at the named points; does nothing by itself.

    A callback may read the trainer but must not communicate between ranks unless every rank does.
    """

    # Every loop.
    def on_fit_start(self, trainer: Any) -> None: ...
    def on_fit_end(self, trainer: Any) -> None: ...
    def on_evaluate_start(self, trainer: Any) -> None: ...
    def on_evaluate_end(self, trainer: Any, metrics: Mapping[str, float]) -> None: ...
    def on_warning(self, trainer: Any, message: str) -> None: ...
    def close(self) -> None:
        """Release what it holds; called at the end of a run, also of one that fails."""

    # `OnlineTrainer`: episodes of collecting and learning.
    def on_episode_start(self, trainer: Any, episode: int) -> None: ...
    def on_episode_end(self, trainer: Any, episode: int, metrics: Mapping[str, float]) -> None: ...
    def on_make_experience_start(self, trainer: Any) -> None: ...
    def on_make_experience_end(self, trainer: Any, collected: "Collected") -> None: ...
    def on_learn_epoch_start(self, trainer: Any, epoch: int) -> None: ...
    def on_learn_epoch_end(self, trainer: Any, epoch: int) -> None: ...
    def on_learn_batch_start(self, trainer: Any) -> None: ...
    def on_learn_batch_end(self, trainer: Any, batch: Sequence["Experience"]) -> None: ...

    # `SupervisedTrainer`: optimizer steps, rows of metrics, and passes over the held-out data.
    def on_step_end(self, trainer: Any) -> None: ...
    def on_log(self, trainer: Any, metrics: Mapping[str, float]) -> None: ...
    def on_evaluate_pass(self, trainer: Any, done: int, passes: int) -> None: ...


class EmptyDeviceCache(Callback):
    """Returns PyTorch's cached memory to the GPU after each collect step and after learning. Without a GPU, nothing happens.

    Generation and learning allocate blocks of different sizes, so what one has cached is often of no use to the other. The next
    phase has to ask the driver again: a few calls in each episode, not one for each batch.
    """

    def on_make_experience_end(self, trainer: Any, collected: "Collected") -> None:
        _empty()

    def on_episode_end(self, trainer: Any, episode: int, metrics: Mapping[str, float]) -> None:
        _empty()


def _empty() -> None:
    from colossalai.accelerator import get_accelerator

    get_accelerator().empty_cache()


REPEAT_EPISODES = 10
"""Episodes between two warnings of the same sign."""


class Watch(Callback):
    """Warns of a run that goes wrong while it can still be stopped: of each sign that `rlvr.tracking.diagnosis` finds, at most
    every `REPEAT_EPISODES`."""

    def __init__(self) -> None:
        self._history = History()
        self._warned: dict[str, int] = {}

    def on_episode_end(self, trainer: Any, episode: int, metrics: Mapping[str, float]) -> None:
        for finding in self._history.add(dict(metrics)):
            if episode - self._warned.get(finding.name, -REPEAT_EPISODES) >= REPEAT_EPISODES:
                self._warned[finding.name] = episode
                trainer.warn(str(finding))
