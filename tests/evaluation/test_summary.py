"""Figures from recorded samples: pass@k and maj@k per problem against their definitions, and what counts as one answer."""

import itertools
import json
from pathlib import Path

import pytest

from rlvr.errors import UserError
from rlvr.evaluation.records import Records
from rlvr.evaluation.summary import summarise


def line(problem: str, sample: int, answer: str | None, correct: bool, **more):
    said = {"dataset": "d", "problem": problem, "sample": sample, "answer": answer, "correct": correct, "question": "?"}
    return (
        said
        | {
            "format": True,
            "finished": True,
            "tokens": 3,
            "status": "correct" if correct else "wrong",
            "correct_anyway": correct,
        }
        | more
    )


RECORDED = {
    "a": [("4", True), ("5", False), ("5", False), ("4.0", True)],
    "b": [("1/2", False), ("0.5", False), ("7", True), ("7", True)],
    "c": [(None, False), ("9", True), ("", False), (None, False)],
    "d": [("1", False), ("2", False), ("3", False), ("4", False)],
}
LINES = [line(name, i, *said) for name, samples in RECORDED.items() for i, said in enumerate(samples)]


def test_pass_at_k_of_recorded_samples_is_the_unbiased_formula() -> None:
    found = summarise(LINES)
    for k in (2, 4):
        subsets = [
            any(right for _, right in chosen)
            for samples in RECORDED.values()
            for chosen in itertools.combinations(samples, k)
        ]
        assert found[f"pass@{k}"] == pytest.approx(sum(subsets) / len(subsets))
    assert found["accuracy"] == pytest.approx(5 / 16) and found["problems"] == 4 and found["samples"] == 4


def test_answers_that_say_the_same_vote_together() -> None:
    # a: 2 to 2, by lot; b: 1/2 and 0.5 are one answer, 2 to 2; c: the only vote is right; d: never.
    assert summarise(LINES)["maj@4"] == pytest.approx((0.5 + 0.5 + 1 + 0) / 4)


def test_one_sample_each_has_no_k() -> None:
    found = summarise(
        [
            line("a", 0, "4", True, scores={"f": 1.0}),
            line("b", 0, "5", False, scores={"f": None}, finished=False, correct_anyway=True),
        ]
    )
    assert found["accuracy"] == 0.5 and found["accuracy_anyway"] == 1.0
    assert not [name for name in found if "@" in name]
    assert (
        found["rewards"] == {"f": 1.0} and found["truncated"] == 0.5 and found["statuses"] == {"correct": 1, "wrong": 1}
    )


def test_a_folder_goes_on_where_whole_units_end(tmp_path: Path) -> None:
    settings = {"model": "m", "seed": 1}
    records = Records(tmp_path / "e", settings, resume=False, unit=2, total=6)
    records.add([{"n": 0}, {"n": 1}])
    records.add([{"n": 2}])
    with (tmp_path / "e" / "responses.jsonl").open("a") as file:
        file.write('{"n": 3')  # what a kill leaves
    again = Records(tmp_path / "e", settings, resume=True, unit=2, total=6)
    assert again.lines == [{"n": 0}, {"n": 1}]
    again.add([{"n": 2}, {"n": 3}])
    again.add([{"n": 4}])
    assert len(Records(tmp_path / "e", settings, resume=True, unit=2, total=5).lines) == 5  # the last unit may be short
    assert [json.loads(text)["n"] for text in (tmp_path / "e" / "responses.jsonl").read_text().splitlines()] == [
        *range(5)
    ]


def test_another_evaluation_is_refused(tmp_path: Path) -> None:
    Records(tmp_path, {"model": "m", "seed": 1}, resume=False, unit=1, total=1)
    with pytest.raises(UserError, match="--resume"):
        Records(tmp_path, {"model": "m", "seed": 1}, resume=False, unit=1, total=1)
    with pytest.raises(UserError, match="seed 1 instead of 2"):
        Records(tmp_path, {"model": "m", "seed": 2}, resume=True, unit=1, total=1)
