"""`EmptyDeviceCache`: the device memory that one phase has cached is free for the next."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr.trainer.callbacks import Callback

if TYPE_CHECKING:
    from rlvr.experience.maker import Collected
    from rlvr.trainer.online import OnlineTrainer


class EmptyDeviceCache(Callback):
    """Gives cached blocks back after each collect step and after learning; nothing happens on a CPU.

    Generation and learning ask for blocks of different sizes, so what one has cached is often of no use to the other. The
    next phase pays for it by asking the driver again: a few calls in each episode, not one for each batch.
    """

    def on_make_experience_end(self, trainer: "OnlineTrainer", collected: "Collected") -> None:
        _empty()

    def on_episode_end(self, trainer: "OnlineTrainer", episode: int, metrics: Mapping[str, float]) -> None:
        _empty()


def _empty() -> None:
    from colossalai.accelerator import get_accelerator

    get_accelerator().empty_cache()
