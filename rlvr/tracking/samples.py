"""Responses as trackers show them: think and answer parts apart, cut to a size, as rows of a table."""

from collections.abc import Sequence
from dataclasses import dataclass

from rewards import Sample, Tags
from rewards.combine import Combined

LONGEST = 2000
"""Characters of a text in a table; of longer ones the middle is left out."""
COLUMNS = ("step", "prompt", "response", "think", "answer", "gold", "verdict", "reward")


@dataclass(frozen=True)
class TrackedSample:
    """One response as trackers show it.

    Attributes:
        prompt: what the model saw.
        response: all that it wrote.
        think, answer: the parts between its tags; "" where it has none.
        gold: the right answer, "" if there is none.
        verdict: the grader's status, "-" without one.
        reward: what it was paid; None if nothing applied.
    """

    prompt: str
    response: str
    think: str
    answer: str
    gold: str
    verdict: str
    reward: float | None


def tracked_samples(samples: Sequence[Sample], results: Sequence[Combined]) -> list[TrackedSample]:
    """Some responses with their verdicts, as trackers show them."""
    return [_tracked(sample, result) for sample, result in zip(samples, results, strict=True)]


def _tracked(sample: Sample, result: Combined) -> TrackedSample:
    return TrackedSample(
        prompt=shortened(sample.prompt),
        response=shortened(sample.response),
        think=shortened(thinking_of(sample.response, sample.tags)),
        answer=shortened(sample.answer or ""),
        gold=shortened(sample.gold or ""),
        verdict=result.outcome.status if result.outcome else "-",
        reward=result.total,
    )


def thinking_of(response: str, tags: Tags | None) -> str:
    """The thinking in a response, without its tags; "" where there is none. It goes to the last end of thinking, or to the
    end of the response, and begins with the response where the prompt opened it."""
    if tags is None:
        return ""
    before, ended, _ = response.rpartition(tags.think_end.text)
    text = before if ended else response
    _, began, inside = text.partition(tags.think_start.text)
    if began:
        return inside.strip()
    return text.strip() if ended else ""


def shortened(text: str, limit: int = LONGEST) -> str:
    """The text; of one longer than `limit` its two ends."""
    if len(text) <= limit:
        return text
    half = (limit - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def table_rows(step: int, samples: Sequence[TrackedSample]) -> list[list[str | int | float | None]]:
    """A row of `COLUMNS` for each sample."""
    return [[step, *(getattr(sample, name) for name in COLUMNS[1:])] for sample in samples]
