"""`Tool`: what environments have in common that answer calls: the model writes a call between the template's call tags, and reads what
comes of it.

    <call>12 * 48 - 7</call>   ->   569

A turn without a call is the answer, and ends the episode. What goes wrong is said, and the model may try again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewards.errors import UserError


@dataclass(frozen=True)
class Result:
    """What came of a call.

    Attributes:
        text: for the model.
        failed: it is an error.
        spent: what it took, by name; a curve each (`reward/environment/NAME`).
    """

    text: str
    failed: bool = False
    spent: Mapping[str, float] = field(default_factory=dict)


class Tool:
    """An environment that answers calls. A class of it has `answer`.

    Args:
        cost: price of a call.
        max_calls: in one turn; further ones are not answered.
        max_characters: of what the model reads of a call; the middle of more is left out.

    Raises:
        UserError: one of them is out of range.
    """

    def __init__(self, cost: float = 0.0, max_calls: int = 8, max_characters: int = 2000) -> None:
        for name, value in (("max_calls", max_calls), ("max_characters", max_characters)):
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 10_000:
                raise UserError(
                    f"{type(self).__name__}: {name} is {value!r}; it must be a whole number from 1 to 10000"
                )
        self.cost, self.max_calls, self.max_characters = cost, max_calls, max_characters

    def answer(self, calls: Sequence[str]) -> list[Result]:
        """A result for each call of a turn."""
        raise NotImplementedError

    def reset(self, problem: Mapping[str, Any]) -> None:
        self.tags = problem["tags"]

    def step(self, text: str) -> tuple[str, bool, dict[str, float]]:
        """The results of the turn's calls, each on lines of its own; over where there is none. Pays minus the cost of the calls, and
        counts calls, errors and what they took (`_calls`, `_errors`, ...)."""
        calls = self.tags.calls_of(text)
        results = self.answer(calls[: self.max_calls])
        scores = {"_calls": float(len(calls)), "_errors": float(sum(result.failed for result in results))}
        for name, value in ((name, value) for result in results for name, value in result.spent.items()):
            scores[f"_{name}"] = scores.get(f"_{name}", 0.0) + value
        if self.cost:
            scores["cost"] = -self.cost * len(calls)
        return "\n".join(shown(result.text, self.max_characters) for result in results), not calls, scores


def shown(text: str, most: int) -> str:
    r"""A text that a stranger wrote, as a model may read it: no longer than `most` characters and a few, control characters spelled out.

    >>> shown("a\x1b[31m\tb\u202e", 100), shown("0123456789", 4)
    ('a\\x1b[31m\tb\\u202e', '01\n... (6 characters left out)\n89')
    """
    text = _spelled(text)
    if len(text) <= most:
        return text
    head, tail = text[: most - most // 2], text[len(text) - most // 2 :]
    return f"{head}\n... ({len(text) - most} characters left out)\n{tail}"


def _spelled(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)
