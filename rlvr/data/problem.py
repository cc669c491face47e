"""`Problem`: one question with the answer that a rule can check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Problem:
    """What every reader yields and everything after it takes.

    Attributes:
        id: stable and unique within its source, so that a resumed run sees the same problem under the same id.
        question: what the user asks.
        answer: the right answer; None where the data has none (only a reward that needs no answer can pay then).
        columns: the row's other columns, which reward functions may ask for by name.
        source: where it came from, for messages: `file:line` or `builtin:seed`.
    """

    id: str
    question: str
    answer: str | None
    columns: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
