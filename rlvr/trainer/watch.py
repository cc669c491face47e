"""Signs of a run going wrong, told while it can still be stopped."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr.diagnosis import History
from rlvr.trainer.callbacks import Callback

if TYPE_CHECKING:
    from rlvr.trainer.online import OnlineTrainer

REPEAT_EPISODES = 10


class Watch(Callback):
    """Warns of what `rlvr.diagnosis` finds, of each sign at most every `REPEAT_EPISODES`."""

    def __init__(self) -> None:
        self._history = History()
        self._warned: dict[str, int] = {}

    def on_episode_end(self, trainer: "OnlineTrainer", episode: int, metrics: Mapping[str, float]) -> None:
        for finding in self._history.add(dict(metrics)):
            if episode - self._warned.get(finding.name, -REPEAT_EPISODES) >= REPEAT_EPISODES:
                self._warned[finding.name] = episode
                trainer.warn(str(finding))
