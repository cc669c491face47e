"""Accuracy on labelled answers, and an argument for every label that we do not follow."""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from fallback_ready import fallback_ready

from benchmarks.reward_targets import TARGETS, check_verdicts
from rewards import Outcome, grade

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "disputed_rows.md"
EVERY_DIFFERENCE_IS_ARGUED = ("hendrycks_is_equiv_tests", "lighteval_extractive_tests", "nemo_math_equal_tests")


@lru_cache
def graded(file: Path) -> list[tuple[dict[str, Any], Outcome]]:
    """The rows of a set with our verdicts; labels say what is equal."""
    if not file.exists():
        pytest.skip(f"no labelled answers at {file}")
    fallback_ready()
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [(row, grade(row["response"], row["gold"], form="equivalent")) for row in rows]


@pytest.mark.parametrize("name", TARGETS)
def test_targets_are_met(name: str, shared_data: Path) -> None:
    pairs = graded(shared_data / "rewards" / f"{name}.jsonl")
    false_positives = [row for row, outcome in pairs if outcome.correct and not row["label"]]
    false_negatives = [row for row, outcome in pairs if not outcome.correct and row["label"]]
    verdicts = check_verdicts(name, len(pairs), len(false_positives), len(false_negatives))
    wrong = [row.get("id") or row["name"] for row in false_positives + false_negatives]
    assert verdicts and all(verdict[-1] for verdict in verdicts), (verdicts, wrong)


def test_no_verdict_is_an_error_and_hardly_any_late(shared_data: Path) -> None:
    for file in sorted((shared_data / "rewards").glob("*.jsonl")):
        if file.stem != "hostile":
            statuses = [outcome.status for _, outcome in graded(file)]
            assert "error" not in statuses
            assert statuses.count("timed_out") <= max(1, len(statuses) // 50), "the fallback process has no time"


def argued() -> dict[str, dict[str, str]]:
    """The rows of the table: id -> what the document says of it."""
    found = {}
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if re.match(r"`[a-z0-9_]+-\d{5}`$", cells[0]):
            name, gold, answer, label, ours, why = cells
            row = {"gold": gold.strip("`"), "answer": answer.strip("`"), "label": label, "ours": ours, "why": why}
            found[name.strip("`")] = row
    return found


def test_the_document_says_what_is_so(shared_data: Path) -> None:
    document = argued()
    assert document
    for name, said in document.items():
        pairs = graded(shared_data / "rewards" / f"{name.rsplit('-', 1)[0]}.jsonl")
        row, outcome = next(pair for pair in pairs if pair[0]["id"] == name)
        assert said["gold"] == row["gold"].replace("\t", "\\t"), name
        assert said["answer"] == (outcome.answer or ""), name
        assert said["label"] == ("correct" if row["label"] else "wrong"), name
        assert said["ours"] == outcome.status, f"{name}: we say {outcome.status} now"
        assert outcome.correct != row["label"], f"{name}: we no longer differ; take it out"
        assert len(said["why"]) > 40


def test_every_label_that_we_do_not_follow_is_argued(shared_data: Path) -> None:
    document = argued()
    for file in sorted((shared_data / "rewards").glob("*.jsonl")):
        if file.stem != "hostile":
            for row, outcome in graded(file):
                differs = outcome.correct != row["label"]
                if differs and (outcome.correct or file.stem in EVERY_DIFFERENCE_IS_ARGUED):
                    assert (row.get("id") or row["name"]) in document, (row["gold"], outcome)


def test_what_the_form_costs_is_argued(shared_data: Path) -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    for file in sorted((shared_data / "rewards").glob("*.jsonl")):
        if file.stem != "hostile":
            for row, outcome in graded(file):
                if row["label"] and outcome.correct and not grade(row["response"], row["gold"]).correct:
                    assert f"| strict: `{row['id']}` |" in document, (row["gold"], outcome)
