"""`Game`: what environments of other packages have in common. The rows of the data say which game is played, and `rows` makes them.

A model has read the question before an environment is begun. So the question is the game's own first observation, written into a row with
the game's name and a seed (`game`, `game_seed`), and the episode begins that game again.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from rewards.errors import UserError
from rewards.tool import shown

MAX_CHARACTERS = 4000
"""Of an observation, unless the options say otherwise."""


class Game:
    """A class of it says how a game is begun, and what a turn does. Between turns it is pickled, and with it the state of Python's own
    `random`, which many games draw from: they go on alike in whichever worker.

    Args:
        max_characters: of an observation; the middle of a longer one is left out.

    Attributes:
        package: the module that must be there; `install` says how to get it.
    """

    package = ""
    install = ""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self.max_characters = max_characters
        self.lots: Any = None

    @classmethod
    def prepare(cls, **_: Any) -> None:
        """Import the package, which takes seconds.

        Raises:
            UserError: it is not installed.
        """
        cls.imported()

    @classmethod
    def imported(cls) -> ModuleType:
        """The package."""
        try:
            return import_module(cls.package)
        except ImportError as error:
            raise UserError(f"{cls.package} can't be imported ({error}): {cls.install}") from error

    def begin(self, game: str, seed: int) -> str:
        """Begin a game. Returns what a player reads first.

        Raises:
            UserError: there is no such game.
        """
        raise NotImplementedError

    def move(self, text: str) -> tuple[str, bool, dict[str, float]]:
        """Take a turn: observation, whether the game is over, scores."""
        raise NotImplementedError

    def reset(self, problem: Mapping[str, Any]) -> None:
        if "game" not in problem or "game_seed" not in problem:
            raise UserError(
                f"{type(self).__name__} needs rows with the columns game and game_seed: make them with "
                f"`python -m rewards.adapters {type(self).__name__.lower()} GAME --count 500 > games.jsonl`"
            )
        self.first(str(problem["game"]), int(problem["game_seed"]))

    def first(self, game: str, seed: int) -> str:
        """Begin a game, with lots of its own."""
        self.lots = random.Random(seed).getstate()
        with self._own_lots():
            return shown(self.begin(game, seed), self.max_characters)

    def step(self, text: str) -> tuple[str, bool, dict[str, float]]:
        with self._own_lots():
            said, done, scores = self.move(text)
        return shown(said, self.max_characters), done, scores

    @contextmanager
    def _own_lots(self) -> Iterator[None]:
        others = random.getstate()
        random.setstate(self.lots)
        try:
            yield
            self.lots = random.getstate()
        finally:
            random.setstate(others)


def rows(kind: type[Game], game: str, count: int, first_seed: int = 0) -> Iterator[dict[str, Any]]:
    """Rows of data, one for each seed. They have no right answer: the game knows what is right.

    Raises:
        UserError: the package is not there, or no such game, or it can't be begun.
    """
    kind.prepare()
    for seed in range(first_seed, first_seed + count):
        yield {"question": kind().first(game, seed), "answer": None, "game": game, "game_seed": seed}
