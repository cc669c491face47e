"""Environments as OpenEnv has them, for tests."""

from enum import Enum

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Said(Action):
    message: str


class Heard(Observation):
    text: str


class Echo(Environment):
    """Says what it hears; over at a word of so many letters."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: object) -> Heard:
        self.letters = 2 + (seed or 0)
        return Heard(text=f"say something of {self.letters} letters")

    def step(self, action: Said, timeout_s: float | None = None, **_: object) -> Heard:
        right = len(action.message) == self.letters
        return Heard(text=action.message, done=right, reward=right)

    @property
    def state(self) -> State:
        return State()


class Way(Enum):
    UP, DOWN = "up", "down"


class Move(Action):
    way: Way


class Stairs(Environment):
    """Three steps up. Takes no seed."""

    def reset(self) -> Heard:
        self.step_number = 0
        return Heard(text="at the bottom")

    def step(self, action: Move) -> Heard:
        self.step_number += 1 if action.way is Way.UP else -1
        return Heard(text=f"on step {self.step_number}", done=self.step_number == 3, reward=-0.5)

    @property
    def state(self) -> State:
        return State()


class Two(Action):
    a: int
    b: int


class Total(Observation):
    total: int
    of: list[int]


class Sum(Environment):
    """Adds two numbers."""

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: object) -> Total:
        return Total(total=0, of=[])

    def step(self, action: Two, timeout_s: float | None = None, **_: object) -> Total:
        return Total(total=action.a + action.b, of=[action.a, action.b], done=True)

    @property
    def state(self) -> State:
        return State()
