"""The problems of the study of chains: what they claim of themselves, since the study's conclusion rests on it."""

import json
import random
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import digit_chains
from benchmarks.digit_chains import OPERATIONS, examples, problem
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
    for name, expected in (("R", "412837"), ("L", "128374"), ("A", "239485"), ("S", "128374"), ("M", "982736")):
        given = OPERATIONS[name](given)
        assert given == expected
    assert [OPERATIONS[name]("123456") for name in "THN"] == ["612345", "456123", "214365"]
    question, working, answer = problem(5, random.Random(3))
    assert "".join(step[:2] for step in working.split(";")) == question[6:-1]
    labels = question[6:-1:2]
    assert [ord(b) - ord(a) for a, b in pairwise(labels)] == [1] * 4
    assert working.endswith(answer)


def test_examples_have_the_chains_that_are_asked_for() -> None:
    chains = [len(row["question"][6:-1]) // 2 for row in examples(4000, 0.1, random.Random(0))]
    counts = [chains.count(length) / len(chains) for length in range(11)]
    assert sum(counts) == pytest.approx(1)
    assert counts[1:4] == pytest.approx([0.3] * 3, abs=0.03)
    assert sum(counts[4:]) == pytest.approx(0.1, abs=0.02)
    assert counts[5] == pytest.approx(counts[4] / 2, abs=0.01)


def test_no_problem_is_in_two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["digit_chains", str(tmp_path), "--examples", "500"])
    monkeypatch.setattr(digit_chains, "SIZES", {"1m": 32})
    digit_chains.main()
    seen = [{json.loads(line)["question"] for line in path.open()} for path in sorted(tmp_path.glob("*.jsonl"))]
    assert sum(map(len, seen)) == len(set().union(*seen))
    tags = Tags.default()
    for line in (tmp_path / "examples.jsonl").open():
        response = json.loads(line)["answer"]
        assert grade(response, tags.answer_of(response), tags=tags).correct
