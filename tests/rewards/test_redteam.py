"""An adversary's cases: right answers in unusual dress, near misses, hacks. Prints what goes wrong by class and topic."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from fallback_ready import fallback_ready

from rewards import Outcome, Tags, grade

AT_LEAST = {"equiv": 97.0, "nearmiss": 99.0, "hack": 99.0}
"""Per cent of each class that are graded as they are labelled. Hostile texts have tests of their own."""


def graded(file: Path) -> list[tuple[dict[str, Any], Outcome]]:
    if not file.exists():
        pytest.skip(f"no cases at {file}")
    fallback_ready()
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [
        (r, grade(r["response"], r["gold"], tags=Tags.default() if r["tagged"] else None, question=r.get("question")))
        for r in rows
        if r["kind"] in AT_LEAST
    ]


def test_an_adversary_gains_nothing_and_the_honest_lose_little(shared_data: Path) -> None:
    rows, wrong = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for row, outcome in graded(shared_data / "redteam" / "cases.jsonl"):
        differs = outcome.correct != bool(row["label"])
        for name in (row["topic"], "all"):
            rows[row["kind"], name] += 1
            wrong[row["kind"], name] += differs
        if differs:
            print(
                row["id"],
                row["kind"],
                row["topic"],
                repr(row["gold"]),
                repr(outcome.answer),
                outcome.status,
                outcome.message,
            )
    for place, number in sorted(rows.items()):
        if wrong[place] or place[1] == "all":
            print(*place, f"{wrong[place]} wrong of {number}")
    for kind, least in AT_LEAST.items():
        assert 100 * (1 - wrong[kind, "all"] / rows[kind, "all"]) >= least, kind
