"""Environments: what answers a model, turn by turn, until the episode is over.

    # guess.py
    class Guess:
        def reset(self, problem):
            self.number = int(problem["gold"])

        def step(self, text):
            guess = int(text) if text.strip().isdigit() else -1
            if guess == self.number:
                return "Yes!", True, 1.0
            return ("Higher." if guess < self.number else "Lower."), False, 0.0

`reset` gets the problem: a mapping with `question`, `gold`, `tags` (the template's), `seed` (a whole number, the same for all responses to a
problem that are compared, and another one each time that it is drawn again) and the columns of the data.
`step` gets the text of the model's turn, without special tokens, and returns three things: what the model reads next, whether the
episode is over, and scores: a number, a mapping of numbers by name (not paid where the name begins with `_`), or None.

An environment runs in the worker processes of a `RewardPool`, with its deadlines and limits: `TakeTurn` makes a function of it that takes
one turn. Any worker may take the next one, so between turns an environment is bytes, which go through the pool's process unread; a
step is done once, and one that hangs or crashes costs its own episode and no other. So what an environment holds must be what pickle can
take: no connections, threads or locks.

A class method `prepare(**options)`, if there is one, is called before any episode in each process that has the environment: to import what
takes long, and to refuse with a `UserError` what can't work.

Left out: environments that stay where they are. A worker's death would end all episodes in it, and who answers when would decide what is
sampled.
"""

import base64
import inspect
import json
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rewards.outcome import Outcome, Score

MAX_OBSERVATION = 100_000
"""Most characters of an observation: more than any context holds."""
MAX_STATE_BYTES = 2**24
"""Most bytes of an environment between two turns."""


class Environment(Protocol):
    """What a class needs to be an environment. It is made anew for each episode, with the options that the settings have for it."""

    def reset(self, problem: Mapping[str, Any]) -> None:
        """Begin an episode. The model has read the question."""

    def step(self, text: str) -> tuple[str, bool, float | Mapping[str, float] | None]:
        """Take the model's turn. Returns the observation, whether the episode is over, and scores."""
        ...


@dataclass(frozen=True)
class Answer:
    """An environment's answer to one turn.

    Attributes:
        observation: what the model reads next.
        done: the episode is over.
        scores: by name; a single number is called `score`.
        state: the environment after the turn, for the next one; empty when it is over.
    """

    observation: str
    done: bool
    scores: Mapping[str, float]
    state: bytes


def is_environment(thing: Any) -> bool:
    """True for a class (or anything that makes objects) with `reset` and `step`."""
    return callable(thing) and callable(getattr(thing, "reset", None)) and callable(getattr(thing, "step", None))


class TakeTurn:
    """An environment as a function that a pool can call: it takes one turn, the first after a reset. `read_answer` reads its score.

    Args:
        environment: makes one.
    """

    def __init__(self, environment: Callable[..., Environment]) -> None:
        self.environment = environment
        self.__name__ = getattr(environment, "__name__", type(environment).__name__)
        own = inspect.signature(type(self).__call__).parameters
        options = inspect.signature(environment).parameters
        kept = [
            p.replace(kind=p.KEYWORD_ONLY) for p in options.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        ]
        self.__signature__ = inspect.Signature([own[name] for name in ("response", "problem", "state")] + kept)
        # Sending it to another process (`pool.pickling`) needs the module that the environment comes from.
        self.__module__ = environment.__module__

    def prepare(self, **options: Any) -> None:
        """Call the environment's class method `prepare`, if it has one."""
        if inspect.ismethod(hook := getattr(self.environment, "prepare", None)):
            hook(**options)

    def __call__(self, response: str, problem: Mapping[str, Any], state: bytes, **options: Any) -> Score:
        """The answer to `response`. `state` is that of the answer before; empty at the first turn, when `options` make an environment.

        Raises:
            Exception: whatever the environment raises, or what it returned is no answer.
        """
        import cloudpickle  # knows classes that are defined in a script, too

        if state:
            environment = pickle.loads(state)  # written below, in a worker of the same pool
        else:
            environment = self.environment(**options)
            environment.reset(problem)
        observation, done, scores = _checked(environment.step(response))
        after = b"" if done else cloudpickle.dumps(environment)
        if len(after) > MAX_STATE_BYTES:
            raise ValueError(f"it holds {len(after):,} bytes after its turn; at most {MAX_STATE_BYTES:,} are kept")
        said = {"observation": observation, "done": done, "scores": scores, "state": base64.b64encode(after).decode()}
        return Score(None, text=json.dumps(said))


def _checked(answer: Any) -> tuple[str, bool, dict[str, float]]:
    if not isinstance(answer, tuple) or len(answer) != 3:
        raise TypeError(f"step must return (observation, done, scores), not {answer!r:.100}")
    observation, done, scores = answer
    if not isinstance(observation, str):
        raise TypeError(f"an observation must be text, not {observation!r:.100} ({type(observation).__name__})")
    if len(observation) > MAX_OBSERVATION:
        raise ValueError(f"an observation of {len(observation):,} characters; at most {MAX_OBSERVATION:,} are allowed")
    observation.encode()  # halves of characters are no text that a tokenizer takes
    named = scores if isinstance(scores, Mapping) else {} if scores is None else {"score": scores}
    return observation, bool(done), {str(name): _number(name, value) for name, value in named.items()}


def _number(name: Any, value: Any) -> float:
    if isinstance(value, str | bytes) or not hasattr(value, "__float__") or not math.isfinite(float(value)):
        raise ValueError(f"the score {name!r} must be a finite number, not {value!r:.100}")
    return float(value)


def paid(scores: Mapping[str, float]) -> float:
    """What an episode's scores come to: `score` if there is one, else the sum of those whose names don't begin with `_`."""
    return scores.get("score", sum(value for name, value in scores.items() if not name.startswith("_")))


def read_answer(score: Score) -> Answer | Outcome:
    """What a worker says of a turn: an answer, or why there is none. The worker ran foreign code, so nothing is taken on trust."""
    if score.outcome is not None:
        return score.outcome
    try:
        said = json.loads(score.text)
        observation, done, scores = _checked((said["observation"], said["done"], said["scores"]))
        state = base64.b64decode(said["state"], validate=True)
        if bool(state) == done:
            raise ValueError("there is a state exactly if the episode goes on")
        return Answer(observation, done, scores, state)
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError) as error:
        return Outcome("error", message=f"a worker sent no answer: {error}")
