"""`--environment python`: the model writes a program between the template's call tags, and reads what it prints.

    <call>sum(d for d in range(1, 28) if 28 % d == 0)</call>   ->   28

Each call is a program of its own: nothing is left of the one before. The value of a last line that is an expression is printed, as at
Python's prompt.
"""

from collections.abc import Sequence
from typing import Any

from rewards.errors import UserError
from rewards.python import bubblewrap, interpreter
from rewards.python.interpreter import Ran
from rewards.tool import Result, Tool

SANDBOXES = ("interpreter", "bubblewrap")


class Python(Tool):
    """Runs the calls of a turn, one after the other, within one budget.

    Args:
        sandbox: `interpreter` runs a subset of Python in an interpreter of our own, which knows no way out and counts steps;
            `bubblewrap` runs the machine's Python in a sandbox of Linux, by the clock.
        steps: of the interpreter, for all calls of a turn.
        seconds: of the sandbox, for all calls of a turn; keep it below `--reward_timeout_s`.
        options: as for `Tool`.

    Raises:
        UserError: one of them is out of range.
    """

    def __init__(
        self,
        sandbox: str = "interpreter",
        steps: float = interpreter.MAX_STEPS,
        seconds: float = 5.0,
        cost: float = 0.0,
        max_calls: int = 8,
        max_characters: int = 2000,
    ) -> None:
        super().__init__(cost, max_calls, max_characters)
        if sandbox not in SANDBOXES:
            raise UserError(f"Python: sandbox is {sandbox!r}; it must be one of {', '.join(SANDBOXES)}")
        for name, value, most in (("steps", steps, 1e9), ("seconds", seconds, 600)):
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value <= most:
                raise UserError(f"Python: {name} is {value!r}; it must be a number above 0, at most {most:g}")
        self.sandbox, self.steps, self.seconds = sandbox, steps, seconds

    @classmethod
    def prepare(cls, **options: Any) -> None:
        """Refuse what can't work on this machine, before there is an episode.

        Raises:
            UserError: an option out of range, or a sandbox that does not work here.
        """
        if cls(**options).sandbox == "bubblewrap" and (reason := bubblewrap.why_not()):
            raise UserError(
                f'Python: sandbox "bubblewrap" does not work here: {reason}; leave it out to take the interpreter, which works everywhere'
            )

    def answer(self, calls: Sequence[str]) -> list[Result]:
        """A result for each program."""
        left, results = (self.steps if self.sandbox == "interpreter" else self.seconds), []
        for source in calls:
            if self.sandbox == "interpreter":
                ran = interpreter.run(source, left)
                left -= ran.steps
                spent = {"steps": ran.steps}
            else:
                ran = bubblewrap.run(source, left)
                left = max(0.0, left - ran.seconds)
                spent = {"seconds": ran.seconds}
            results.append(Result(_said(ran), bool(ran.error), spent))
        return results


def _said(ran: Ran) -> str:
    """What the model reads: what was printed, and then what went wrong."""
    lines = [ran.text.rstrip("\n")] if ran.text.strip() else []
    if ran.error:
        lines.append(f"error: {ran.error}")
    return "\n".join(lines) or "(no output)"
