"""Tasks of verifiers (https://github.com/PrimeIntellect-ai/verifiers), its version 1: `--environment verifiers`.

A game is a function that returns a `Taskset`, named `package.module:function` or `path/to/file.py:function`; its seed is the place of a
task. The model's turn is scored by the task's own rewards, each weighted as it says, and its metrics are curves. An episode is one turn.

Left out: tasks with tool servers, containers or a user that a model plays. There verifiers runs the model itself, behind an endpoint of its
own, and the tokens that were sampled would not be ours.
"""

import asyncio
import inspect
from functools import cache
from typing import Any

from rewards.adapters.game import Game
from rewards.errors import UserError
from rewards.registry import at_place


class Verifiers(Game):
    """A task that is answered in one turn."""

    package = "verifiers.v1"
    install = "pip install verifiers"

    def begin(self, game: str, seed: int) -> str:
        self.place = (game, seed)
        return _asked(self._task())

    def move(self, text: str) -> tuple[str, bool, dict[str, float]]:
        vf, task = self.imported(), self._task()
        asked = vf.MessageNode(message=vf.UserMessage(content=_asked(task)))
        said = vf.MessageNode(parent=0, message=vf.AssistantMessage(content=text), sampled=True)
        trace = vf.Trace(
            task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
            agent=vf.AgentInfo(config=vf.AgentConfig()),
            nodes=[asked, said],
        )
        asyncio.run(task.score(trace))
        scores = {name: reward.value for name, reward in trace.rewards.items() if reward is not None}
        measured = {f"_{name}": float(value) for name, value in trace.metrics.items() if value is not None}
        return "", True, {**scores, **measured}

    def _task(self) -> Any:
        """The task. It is found again at each turn: what it holds need not be something that can be pickled."""
        game, place = self.place
        found = next(iter(_taskset(game).include(idx=[f"{place}:{place + 1}"])), None)
        if found is None:
            raise UserError(f"{game} has no task {place}")
        needs = [hook.__name__ for hook in (*found.hooks("reward"), *found.hooks("metric")) if _needs_runtime(hook)]
        needs += ["a container"] * found.NEEDS_CONTAINER + ["tools"] * bool(type(found).toolsets(found.config))
        if needs:
            raise UserError(
                f"{game}: task {place} needs a runtime of verifiers (for {', '.join(needs)}), which there is none of here"
            )
        return found


def _asked(task: Any) -> str:
    """What the model reads: a task's system prompt is put before it, as verifiers does for what takes no other messages."""
    system, prompt = task.data.system_prompt, task.data.prompt_text
    return f"{system}\n\n{prompt}" if system else prompt


def _needs_runtime(hook: Any) -> bool:
    parameter = inspect.signature(hook).parameters.get("runtime")
    return parameter is not None and parameter.default is inspect.Parameter.empty


@cache
def _taskset(game: str) -> Any:
    """A taskset of this process.

    Raises:
        UserError: what is named returns none.
    """
    vf = Verifiers.imported()
    try:
        made = at_place(game)()
    except TypeError as error:
        raise UserError(
            f"{game} can't be called without arguments ({error}); name a function that returns a Taskset"
        ) from error
    if not isinstance(made, vf.Taskset):
        raise UserError(f"{game} returns {type(made).__name__} and no Taskset of verifiers")
    return made
