"""Rollouts that come in any order and go in that of the prompts."""

from rlvr.rollout.engine import Rollout


class InOrder:
    """Collects `count` rollouts by their place, and hands out what is complete from the front.

    Attributes:
        tokens: response tokens of all that came so far.
    """

    def __init__(self, count: int) -> None:
        self._waiting: list[Rollout | None] = [None] * count
        self._taken = 0
        self.tokens = 0

    def add(self, index: int, rollout: Rollout) -> None:
        """Take the rollout that belongs at `index`."""
        self._waiting[index] = rollout
        self.tokens += len(rollout.response_ids)

    def take(self) -> list[Rollout]:
        """The rollouts up to the first that is missing, each once."""
        ready: list[Rollout] = []
        while self._taken < len(self._waiting) and (rollout := self._waiting[self._taken]) is not None:
            ready.append(rollout)
            self._waiting[self._taken], self._taken = None, self._taken + 1
        return ready
