"""Responses for the page: the parts between tags told apart. All text stays text; the template escapes it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.report.runs import Run

SHOWN_AT_ONCE = 4
"""Of each step."""
STEPS = 6
LONGEST = 4000
_PART = re.compile(r"(<(think|answer)>.*?(?:</\2>|$))", re.DOTALL)


@dataclass(frozen=True)
class Part:
    """A stretch of a response: `think`, `answer`, or other text."""

    kind: str
    text: str


@dataclass(frozen=True)
class Shown:
    """One response as the page shows it."""

    prompt: str
    parts: tuple[Part, ...]
    gold: str
    score: str
    verdict: str


def parts_of(response: str) -> tuple[Part, ...]:
    """The response cut at its think and answer tags; nothing is lost.

    >>> [(p.kind, p.text) for p in parts_of("<think>a</think> b <answer>c")]
    [('think', '<think>a</think>'), ('other', ' b '), ('answer', '<answer>c')]
    """
    parts, end = [], 0
    for match in _PART.finditer(response):
        if match.start() > end:
            parts.append(Part("other", response[end : match.start()]))
        parts.append(Part(match[2], match[1]))
        end = match.end()
    if end < len(response):
        parts.append(Part("other", response[end:]))
    return tuple(parts)


def samples_of(run: Run) -> dict[int, list[Shown]]:
    """Some samples at some steps, from the first to the last."""
    by_step: dict[int, list[Mapping[str, Any]]] = {}
    for row in run.samples:
        if isinstance(row.get("step"), int):
            by_step.setdefault(row["step"], []).append(row)
    return {step: [_shown(row) for row in by_step[step][:SHOWN_AT_ONCE]] for step in _spread(sorted(by_step))}


def _spread(steps: Sequence[int]) -> list[int]:
    if len(steps) <= STEPS:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (STEPS - 1))] for i in range(STEPS)]


def _shown(row: Mapping[str, Any]) -> Shown:
    score = row.get("score")
    return Shown(
        prompt=str(row.get("prompt", ""))[-LONGEST:],
        parts=parts_of(str(row.get("response", ""))[:LONGEST]),
        gold=str(row.get("gold", "")),
        score=f"{score:.3g}" if isinstance(score, int | float) else "-",
        verdict=str(row.get("verdict", "-")),
    )
