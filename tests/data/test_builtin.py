"""The generated problems: right, reproducible, and with a test split that training never sees."""

import subprocess
import sys

import pytest

from rewards import Tags, grade
from rlvr.data.builtin import builtin_problems, expression_of, numbers_of, working_of
from rlvr.data.drawing import split_of, worked_example


def test_problems_are_reproducible_and_differ_by_seed() -> None:
    first = builtin_problems("train", 50, 3)
    assert first == builtin_problems("train", 50, 3) == builtin_problems("train", 200, 3)[:50]
    assert first != builtin_problems("train", 50, 4)
    code = "from rlvr.data.builtin import builtin_problems as b; print([p.question for p in b('train', 50, 3)])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert out.stdout.strip() == str([p.question for p in first])


def test_no_test_expression_is_ever_a_training_one() -> None:
    train = {p.columns["expression"] for seed in range(3) for p in builtin_problems("train", 3000, seed)}
    test = {p.columns["expression"] for seed in range(3) for p in builtin_problems("test", 1000, seed)}
    assert train and test and not train & test
    assert all(split_of(e) == "test" for e in test) and all(split_of(e) == "train" for e in train)


@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_are_right_and_stories_tell_the_same_numbers(split) -> None:
    problems = builtin_problems(split, 500, 0)
    kinds = {p.columns["kind"] for p in problems}
    assert kinds == {"sum", "story"}
    for problem in problems:
        numbers = numbers_of(problem.columns["expression"])
        assert problem.answer == str(sum(numbers)) and expression_of(numbers) == problem.columns["expression"]
        for number in numbers:
            assert str(abs(number)) in problem.question


def test_both_styles_of_worked_examples_are_right_and_well_formed() -> None:
    tags = Tags.default()
    for problem in builtin_problems("train", 200, 1):
        for shortcut in (False, True):
            text = worked_example(problem, shortcut=shortcut)
            assert grade(text, problem.answer, tags=tags).correct and tags.is_well_formed(text)
    assert working_of([12, 7, -4]) == "12+7=19;19-4=15"
