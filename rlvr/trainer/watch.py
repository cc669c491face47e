"""Signs of a run going wrong, told while it can still be stopped."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr.diagnosis import WINDOW, diagnose
from rlvr.trainer.callbacks import Callback

if TYPE_CHECKING:
    from rlvr.trainer.online import OnlineTrainer

REPEAT_EPISODES = 10
KEPT = 3 * WINDOW


class Watch(Callback):
    """Warns of what `rlvr.diagnosis` finds, of each sign at most every `REPEAT_EPISODES`."""

    def __init__(self) -> None:
        self._rows: list[Mapping[str, float]] = []
        self._warned: dict[str, int] = {}

    def on_episode_end(self, trainer: "OnlineTrainer", episode: int, metrics: Mapping[str, float]) -> None:
        self._rows = [*self._rows[:1], *self._rows[1:][-KEPT:], dict(metrics)]  # the first is what entropy began with
        for finding in diagnose(self._rows):
            if episode - self._warned.get(finding.name, -REPEAT_EPISODES) >= REPEAT_EPISODES:
                self._warned[finding.name] = episode
                trainer.warn(str(finding))
