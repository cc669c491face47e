"""Environments as OpenEnv has them, for tests."""

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
