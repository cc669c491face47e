"""Where the loop stands, so that it can stop after any collect step or optimizer step and go on there."""

from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass
class Progress:
    """Counters of what is done.

    Attributes:
        episode: finished episodes.
        collect_step: finished collect steps of the current episode.
        learning: whether the current episode's experience is complete and normalised.
        update_step: finished passes over the buffer in the current episode.
        mini_batch: finished mini-batches of the current pass.
        safe_point: safe points passed in the current episode.
        optimizer_steps: of the whole run.
        samples: responses collected in the whole run, over all processes.
        seconds: time spent in training, over all sessions; `episode_seconds` in the current episode.
    """

    episode: int = 0
    collect_step: int = 0
    learning: bool = False
    update_step: int = 0
    mini_batch: int = 0
    safe_point: int = 0
    optimizer_steps: int = 0
    samples: int = 0
    seconds: float = 0.0
    episode_seconds: float = 0.0

    @property
    def at_episode_start(self) -> bool:
        return self.collect_step == 0 and not self.learning

    def end_episode(self) -> None:
        self.episode += 1
        self.collect_step = self.update_step = self.mini_batch = self.safe_point = 0
        self.learning = False
        self.episode_seconds = 0.0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for f in fields(self):
            setattr(self, f.name, state[f.name])
