"""The generated data sets by name: right answers and workings, levels, held-out expressions, the same on every machine."""

import re
import subprocess
import sys
from fractions import Fraction

import pytest

from rewards import Tags, grade
from rlvr.config import GENERATED, parse, parse_sft
from rlvr.data.arithmetic import ARITHMETIC
from rlvr.data.builtin import numbers_of
from rlvr.data.drawing import split_of, worked_example
from rlvr.data.generated import SETS
from rlvr.data.patterns import Pattern, in_words
from rlvr.data.readers import read_problems
from rlvr.data.word_problems import WORD_PROBLEMS
from rlvr.errors import UserError
from rlvr.validate.ppo import check_config

SOURCES = [f"{worded.name}@{level}" for worded in (ARITHMETIC, WORD_PROBLEMS) for level in worded.levels]
NUMBERS_IN_WORDS = {in_words(number): number for number in range(100)}


def value(expression: str) -> Fraction:
    """A calculator of its own: two operands and an operator, either in brackets."""
    left, operation, right = re.fullmatch(r"(\d+|\(.*?\))([-+*/])(\d+|\(.*?\))", expression).groups()
    a, b = (value(side[1:-1]) if side.startswith("(") else Fraction(side) for side in (left, right))
    return {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else Fraction(0)}[operation]


def numbers_in(text: str, words: bool) -> set[int]:
    found = re.findall(r"\d+|[a-z]+(?:-[a-z]+)?", text.lower())
    known = NUMBERS_IN_WORDS if words else {}
    return {int(word) if word.isdigit() else known[word] for word in found if word.isdigit() or word in known}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_and_workings_are_right(source: str, split: str) -> None:
    name, _, level = source.partition("@")
    worded = {"arithmetic": ARITHMETIC, "word_problems": WORD_PROBLEMS}[name]
    rules, tags = worded.levels[level], Tags.default()
    problems = read_problems([source], split=split, limit=400)
    assert len(problems) > 200 and SETS[name].levels == ("1", "2", "3", "4")
    for problem in problems:
        expression, solution = problem.columns["expression"], problem.columns["solution"]
        assert value(expression) == int(problem.answer) and 2 <= int(problem.answer) <= rules.largest
        steps = re.findall(r"(\d+) ([-+*/]) (\d+) = (\d+)", solution)
        assert len(steps) == rules.steps and steps[-1][-1] == problem.answer
        assert {step[1] for step in steps} <= set(rules.operations)
        for left, operation, right, result in steps:
            assert value(f"{left}{operation}{right}") == int(result)
        # The question has the numbers of the expression (one may be used twice), and no place was left unfilled.
        asked = numbers_in(problem.question, words=worded.spelled_share > 0)
        assert asked == {int(n) for n in re.findall(r"\d+", expression)}, problem.question
        assert not re.search(r"[{}]", problem.question + solution) and split_of(expression) == split
        text = worked_example(problem)
        assert grade(text, problem.answer, tags=tags).correct and tags.is_well_formed(text)


def test_every_pattern_is_told_at_some_level() -> None:
    for worded in (ARITHMETIC, WORD_PROBLEMS):
        for pattern in worded.patterns:
            assert [level for level in worded.levels.values() if level.takes(pattern)], pattern.text


def test_a_name_is_never_other_as_well() -> None:
    pattern_texts = [p.text for p in WORD_PROBLEMS.patterns if "{other}" in p.text and "{name}" in p.text]
    both = 0
    for problem in read_problems(["word_problems"], limit=3000):
        for text in pattern_texts:
            words = re.sub(r"\\\{(name|other)\\\}", "([A-Z][a-z]+)", re.escape(text))
            shape = re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^.,?]+", words), problem.question)
            if shape:
                both += 1
                assert len(set(shape.groups())) == 2, problem.question
    assert both > 500


def test_no_held_out_expression_is_trained_on_at_any_level_or_in_mirror_image() -> None:
    def sides(sources: list[str], split: str) -> set[str]:
        return {p.columns["expression"] for s in sources for p in read_problems([s], split=split, limit=1500)}

    train, test = sides(SOURCES, "train"), sides(SOURCES, "test")
    assert train and test and not train & test
    mirrored = {"+".join(reversed(e.split("+"))) for e in train if re.fullmatch(r"\d+\+\d+", e)}
    assert mirrored and not {e for e in mirrored if e.split("+")[0] != e.split("+")[1]} & test


def test_the_same_on_every_machine_and_other_seeds_differ() -> None:
    first = read_problems(["word_problems@3"], limit=40, seed=3)
    assert first == read_problems(["word_problems@3"], limit=90, seed=3)[:40]
    code = "from rlvr.data.readers import read_problems as r; print([p.question for p in r(['word_problems@3'], limit=40, seed=3)])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )
    assert out.stdout.strip() == str([p.question for p in first])
    assert first != read_problems(["word_problems@3"], limit=40, seed=4)


def test_all_levels_together_and_few_problems() -> None:
    kinds = {p.columns["kind"] for p in read_problems(["arithmetic"], limit=200)}
    assert kinds == {"level 1", "level 2", "level 3", "level 4"}
    few = read_problems(["arithmetic@3:test"])  # ends though there are not as many as asked for
    assert 100 < len(few) < 2000 and len({p.question for p in few}) == len(few)


def test_mistakes_name_what_there_is() -> None:
    for source, said in (
        ("word_problems@9", "no level '9'; give word_problems@1, word_problems@2, word_problems@3, word_problems@4"),
        ("builtin@1", "builtin have no level '1'; give builtin@2, builtin@3"),
        ("arithmetic@1:tset", "no split 'tset'; give arithmetic@1:train, arithmetic@1:test. Did you mean 'test'"),
        ("word_problem", "Did you mean 'word_problems'"),
    ):
        with pytest.raises(UserError, match=said):
            read_problems([source])


def test_training_on_generated_problems_holds_out_their_test_splits() -> None:
    rewards = ["--reward_functions", "gsm8k_reward_fn", "--prompt_dataset"]
    check_config(parse([*rewards, "word_problems@1", "arithmetic@2", "--eval_interval", "2"]))
    with pytest.raises(UserError, match="no held-out problems"):
        check_config(parse([*rewards, "word_problems@1:train", "--eval_interval", "2"]))
    with pytest.raises(UserError, match="no columns to choose from"):
        check_config(parse([*rewards, "word_problems@1", "--question_column", "q"]))
    assert parse_sft(["--dataset", "word_problems@1"]).data.dataset == ["word_problems@1"]
    assert tuple(SETS) == GENERATED


def test_a_pattern_reads_its_steps() -> None:
    pattern = Pattern("{name} has {a} rows of {b}, less {c}.", "a * b: {} in rows.", "x - c: {} left.")
    assert pattern.slots == ["a", "b", "c"] and pattern.factors == {"a", "b"} and pattern.operations == {"*", "-"}


def test_built_in_sums_of_so_many_numbers() -> None:
    for count in (2, 5):
        problems = read_problems([f"builtin@{count}"], limit=300)
        assert len(problems) == 300 and {len(numbers_of(p.columns["expression"])) for p in problems} == {count}
    assert all(split_of(p.columns["expression"]) == "test" for p in read_problems(["builtin@5:test"], limit=50))
