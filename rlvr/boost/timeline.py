"""When each role of a run did what, as spans of time: `record` them anywhere, `take` them where they are written.

A process has the phases that it enters (`rlvr.boost.health.enter_phase`); a driver on Ray adds what its rollout workers do.
"""

from collections import deque
from dataclasses import dataclass

TRAINER = "trainer"
"""The role of the process that learns, or of the driver on Ray."""
MAX_SPANS = 100_000
"""Kept where nobody takes them, such as on ranks other than 0."""


@dataclass(frozen=True)
class Span:
    """A stretch of time.

    Attributes:
        role: who: `TRAINER`, "rollout worker 1".
        name: what: "rollout", "update"; details follow a comma.
        begin_s, end_s: in seconds since 1970, by the clock of the process that recorded it.
    """

    role: str
    name: str
    begin_s: float
    end_s: float

    @property
    def kind(self) -> str:
        """What, without details."""
        return self.name.split(",")[0]


_spans: deque[Span] = deque(maxlen=MAX_SPANS)


def record(span: Span) -> None:
    """Keep a span. Any thread may."""
    _spans.append(span)


def take() -> list[Span]:
    """All spans that were recorded since the last call."""
    taken: list[Span] = []
    while _spans:
        taken.append(_spans.popleft())
    return taken
