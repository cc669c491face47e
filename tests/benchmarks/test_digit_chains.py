"""The problems of the study of chains: what they claim of themselves, since the study's conclusion rests on it."""

import json
import random
import sys
from pathlib import Path

import pytest

from benchmarks import digit_chains
from benchmarks.digit_chains import LONGEST, OPERATIONS, RARE, examples, problems, worked
from rewards import grade
from rewards.tags import Tags


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_can_be_undone(name: str) -> None:
    """So that no answer is likelier than another: with as many results as there are numbers, none is made twice."""
    lot = random.Random(0)
    numbers = {"".join(lot.choices("123456789", k=6)) for _ in range(20_000)}
    results = {OPERATIONS[name](number) for number in numbers}
    assert len(results) == len(numbers)
    assert all(len(result) == 6 and set(result) <= set("123456789") for result in results)


def test_working_is_carried_out_from_left_to_right() -> None:
    given = "738214"
    for name, expected in (
        ("R", "412837"),
        ("L", "128374"),
        ("A", "239485"),
        ("S", "128374"),
        ("M", "982736"),
        ("D", "974563"),
    ):
        given = OPERATIONS[name](given)
        assert given == expected
    assert [OPERATIONS[name]("123456") for name in "THN"] == ["612345", "456123", "214365"]
    question, working, answer = worked(list("RLA"), random.Random(3))
    assert question[6:] == "RLA?"
    assert "".join(step[0] for step in working.split(";")) == "RLA"
    assert working.endswith(answer)


def chain_of(row: dict[str, str]) -> str:
    return row["question"][6:-1]


def rare_in(row: dict[str, str]) -> int:
    return sum(name in RARE for name in chain_of(row))


def test_examples_have_chains_of_every_length_and_few_rare_operations() -> None:
    rows = list(examples(4000, 0.1, random.Random(0)))
    counts = [sum(len(chain_of(row)) == length for row in rows) / len(rows) for length in range(LONGEST + 2)]
    assert counts == pytest.approx([0, *[1 / LONGEST] * LONGEST, 0], abs=0.03)
    assert sum(map(rare_in, rows)) / sum(len(chain_of(row)) for row in rows) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("rare", range(LONGEST + 1))
def test_problems_have_as_many_rare_operations_as_asked_for(rare: int) -> None:
    rows = list(problems(rare, 300, set(), random.Random(0)))
    assert {(len(chain_of(row)), rare_in(row)) for row in rows} == {(LONGEST, rare)}
    places = {place for row in rows for place, name in enumerate(chain_of(row)) if name in RARE}
    assert places == (set(range(LONGEST)) if rare else set())


def test_no_problem_is_in_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["digit_chains", str(tmp_path), "--examples", "500"])
    digit_chains.main()
    seen = [{json.loads(line)["question"] for line in path.open()} for path in sorted(tmp_path.glob("*.jsonl"))]
    assert sum(map(len, seen)) == len(set().union(*seen))
    tags = Tags.default()
    for line in (tmp_path / "examples.jsonl").open():
        response = json.loads(line)["answer"]
        assert grade(response, tags.answer_of(response), tags=tags).correct
