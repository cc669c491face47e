"""Environments written for OpenEnv (https://github.com/huggingface/OpenEnv), in this process: `--environment openenv`.

A game is a class of its `Environment`, named `package.module:Class` or `path/to/file.py:Class`. What the model writes becomes the
environment's action: as the value of its only field, or of several as a JSON object (between the call tags, if there are any). An action
that it does not take is said, and the model may try again. Rewards of all steps are added up.

Left out: environments behind a server. A connection can't go from worker to worker, and who answers when would decide what is sampled.
"""

import inspect
import json
import pickle
from typing import Any, get_type_hints

from rewards.adapters.game import Game
from rewards.errors import UserError
from rewards.registry import at_place
from rewards.tags import Tags


class OpenEnv(Game):
    """An environment of OpenEnv, made anew for each episode."""

    package = "openenv.core.env_server.interfaces"
    install = "pip install openenv"

    def begin(self, game: str, seed: int) -> str:
        kind: Any = at_place(game)
        if not (isinstance(kind, type) and issubclass(kind, self.imported().Environment)):
            raise UserError(f"{game} is no environment of OpenEnv: it must be a class of openenv's Environment")
        self.name, self.environment = game, kind()
        return _told(self.environment.reset(seed=seed) if _takes_seed(kind) else self.environment.reset())

    def __getstate__(self) -> dict[str, Any]:
        import cloudpickle

        return {**vars(self), "environment": cloudpickle.dumps(self.environment)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        at_place(state["name"])  # a class in a file must be there before an object of it is read
        # Within our own state, as it was written.
        vars(self).update(state, environment=pickle.loads(state["environment"]))

    def move(self, text: str) -> tuple[str, bool, dict[str, float]]:
        try:
            action = _action(get_type_hints(type(self.environment).step)["action"], text)
        except ValueError as error:  # pydantic's errors are some
            return f"error: {str(error)[:500]}", False, {"_errors": 1.0}
        seen = self.environment.step(action)
        return _told(seen), bool(seen.done), {"score": float(seen.reward or 0.0), "_errors": 0.0}


def _action(kind: Any, text: str) -> Any:
    """The action that a text stands for.

    Raises:
        ValueError: it stands for none.
    """
    calls = Tags.default().calls_of(text)
    said = calls[-1] if calls else text.strip()
    fields = [name for name in kind.model_fields if name != "metadata"]
    if len(fields) == 1 and not said.startswith("{"):
        # A number is read from text, and so is one of several words.
        return kind.model_validate({fields[0]: said})
    return kind.model_validate_json(said)


def _takes_seed(kind: Any) -> bool:
    """False for environments that draw nothing."""
    parameters = inspect.signature(kind.reset).parameters
    return "seed" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _told(seen: Any) -> str:
    """An observation as text: its only text, or all that it holds."""
    held = seen.model_dump(mode="json", exclude={"done", "reward", "metadata"})
    values = list(held.values())
    return values[0] if len(values) == 1 and isinstance(values[0], str) else json.dumps(held)
