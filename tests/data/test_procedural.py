"""Tasks of reasoning-gym: problems that are reproducible and held out, verifiers that run no answer."""

from pathlib import Path

import pytest

from rewards import RewardPool, Sample, resolve
from rewards.errors import UserError as RewardError
from rewards.functions import reasoning_gym_reward_fn
from rewards.procedural import Task, task_names
from rlvr.config import is_generated
from rlvr.config.conditions import have_test_splits
from rlvr.data.drawing import worked_example
from rlvr.data.problems import with_good_golds
from rlvr.data.procedural import parse_source
from rlvr.data.readers import check_source, read_problems
from rlvr.errors import UserError

gym = pytest.importorskip("reasoning_gym")


def test_problems_are_reproducible_and_their_splits_disjoint() -> None:
    train = read_problems(["reasoning_gym:chain_sum?max_terms=3"], split="train", limit=40)
    assert train == read_problems(["reasoning_gym:chain_sum?max_terms=3"], split="train", limit=40)
    assert train[:10] == read_problems(["reasoning_gym:chain_sum?max_terms=3"], split="train", limit=40)[:10]
    other_seed = read_problems(["reasoning_gym:chain_sum?max_terms=3"], split="train", limit=40, seed=1)
    test = read_problems(["reasoning_gym:chain_sum?max_terms=3"], split="test", limit=20)
    questions = [{p.question for p in problems} for problems in (train, other_seed, test)]
    assert [len(found) for found in questions] == [40, 40, 20]
    assert not questions[2] & (questions[0] | questions[1]) and questions[0] != questions[1]
    assert with_good_golds(train, notes := []) == train and not notes


def test_sources_are_mixed_by_size() -> None:
    mixed = read_problems(["reasoning_gym:chain_sum?size=30", "reasoning_gym:gcd?size=10", "builtin"], limit=50)
    assert len(mixed) == 50  # a sample of all
    alone = read_problems(["reasoning_gym:chain_sum?size=30", "reasoning_gym:gcd?size=10"], limit=100)
    kinds = [problem.columns["kind"] for problem in alone]
    assert (kinds.count("chain_sum"), kinds.count("gcd")) == (30, 10)


def test_what_is_held_out_needs_no_flag() -> None:
    assert is_generated("reasoning_gym:gcd") and have_test_splits(["reasoning_gym:gcd?max_value=9", "builtin"])
    assert not have_test_splits(["reasoning_gym:gcd:test"]) and parse_source("reasoning_gym:gcd:test")[1] == "test"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("reasoning_gym:chain_sun", "no task 'chain_sun'. Did you mean 'chain_sum'?"),
        ("reasoning_gym:", "names no task; give reasoning_gym:chain_sum"),
        ("reasoning_gym", "names no task"),
        ("reasoning_gym:gcd:dev", "have no split 'dev'; give reasoning_gym:gcd:train"),
        ("reasoning_gym:chain_sum?min_term=2", "has no setting 'min_term'; it has .*Did you mean 'min_terms'"),
        ("reasoning_gym:chain_sum?min_terms=9&max_terms=2", "refuses its settings .*max_terms"),
        ("reasoning_gym:chain_sum?min_terms=many", "refuses its settings .*min_terms=many"),
        ("reasoning_gym:chain_sum?size=0", "size must be a whole number"),
        ("reasoning_gym:chain_sum?min_terms", "settings are written .NAME=VALUE"),
    ],
)
def test_a_mistake_is_told(source: str, said: str) -> None:
    with pytest.raises((UserError, RewardError), match=said):
        check_source(source)


def test_there_are_no_workings_to_learn_from() -> None:
    [problem] = read_problems(["reasoning_gym:gcd"], limit=1)
    with pytest.raises(UserError, match="no worked solutions to learn from; train on them with rewards"):
        worked_example(problem)


def reward(problem, answer: str, **options) -> float | None:
    return reasoning_gym_reward_fn(
        f"<think>so</think><answer>{answer}</answer>", procedural=problem.columns["procedural"], **options
    ).value


def test_the_verifier_pays() -> None:
    [problem] = read_problems(["reasoning_gym:chain_sum"], limit=1)
    assert reward(problem, problem.answer) == 1 and reward(problem, "x") == 0
    assert 0 < reward(problem, f"it is {problem.answer}") < 1, "a part for what holds the answer"
    assert reward(problem, f"it is {problem.answer}", partial=False) == 0
    assert reasoning_gym_reward_fn("<answer>1</answer>").value is None, "another source's problem"
    nothing = reasoning_gym_reward_fn("<think>what", procedural=problem.columns["procedural"])
    assert nothing.value == 0 and nothing.outcome.status == "no_answer"


def test_expressions_are_read_by_our_parser() -> None:
    countdown, puzzle = Task("countdown"), Task("puzzle24")
    entry = {"metadata": {"numbers": [6, 61, 94, 4], "target": 309}}
    paid = {
        "94*4 - 61 - 6": 1,
        "4*94 - (61 + 6)": 1,
        "309": 0,
        "94*4 - 67": 0,
        "94*4-61-6+0": 0,
        "94*4 - 61 - 6 = 309": 0,
        "": 0,
        "x": 0,
        "94**4": 0,
    }
    assert {answer: countdown.pays(answer, entry) for answer in paid} == paid
    entry = {"metadata": {"numbers": [8, 5, 10, 6]}}
    paid = {"10*(8 - 5) - 6": 1, "6*4*1*1": 0, "8+10+6": 0}
    assert {answer: puzzle.pays(answer, entry) for answer in paid} == paid


def test_formulas_are_compared_by_our_grader() -> None:
    made = Task("simple_integration")
    entry = {"answer": "-34*x**8/15 - 5*x/4 + C"}
    paid = {"-5*x/4 - 34/15*x**8 + C": 1, "-34*x**8/15 - 5*x/4": 0, "-34*x**8/15 + 5*x/4 + C": 0}
    assert {answer: made.pays(answer, entry) for answer in paid} == paid
    made = Task("polynomial_multiplication")
    assert made.pays("3*x + 2*x**2", {"answer": "2*x**2 + 3*x"}) == 1


HOSTILE = "__import__('pathlib').Path('ran').touch()"


@pytest.mark.parametrize("name", ["binary_matrix", "countdown", "n_queens", "number_sorting", "polynomial_multiplication", "puzzle24",
                                  "simple_integration", "intermediate_integration", "spiral_matrix", "string_insertion", "bitwise_arithmetic"])  # fmt: skip
def test_no_answer_is_run(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = Task(name, size=3)
    entry = made.entry(0)
    for text in (HOSTILE, f"[{HOSTILE}]", f"({HOSTILE}, 1)", f"0x1 if {HOSTILE} else 0", f"x + {HOSTILE}"):
        try:
            assert made.pays(text, entry) < 1
        except ValueError:
            pass
    assert not list(tmp_path.iterdir())
    assert made.pays(entry["answer"], entry) == 1


def test_a_verifier_that_would_run_answers_is_refused(monkeypatch) -> None:
    from reasoning_gym.arithmetic.gcd import GCDDataset

    def score_answer(self, answer, entry):
        return float(eval(answer) == 1)

    assert "gcd" in task_names()
    monkeypatch.setattr(GCDDataset, "score_answer", score_answer)
    assert "gcd" not in task_names()
    with pytest.raises(RewardError, match="gcd can't be trained on: its verifier runs the answer as code"):
        Task("gcd")


def test_a_verifier_that_fails_pays_nothing(monkeypatch) -> None:
    made = Task("gcd")
    monkeypatch.setattr(type(made._data), "score_answer", lambda self, answer, entry: 1 / 0)
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        made.pays("1", made.entry(0))
    [problem] = read_problems(["reasoning_gym:lcm"], limit=1)
    assert reward(problem, "9" * 20_000) == 0


def test_a_task_that_does_not_pay_its_own_answers_is_refused(monkeypatch) -> None:
    made = Task("lcm")
    monkeypatch.setattr(type(made._data), "score_answer", lambda self, answer, entry: 0.5)
    with pytest.raises(UserError, match="does not pay its own answer in .* choose another task"):
        read_problems(["reasoning_gym:lcm"], limit=5)


def test_verifiers_run_in_workers() -> None:
    assert not resolve("reasoning_gym_reward_fn").is_bounded and resolve("gsm8k_reward_fn").is_bounded


def test_workers_import_the_tasks_before_any_deadline() -> None:
    [problem] = read_problems(["reasoning_gym:chain_sum"], limit=1)
    right = Sample(f"<answer>{problem.answer}</answer>", problem.answer, columns=problem.columns)
    with RewardPool([resolve("reasoning_gym_reward_fn")], workers=1, timeout_s=3.0, max_failed_share=1.0) as pool:
        assert [score.value for score in pool.score([right] * 3)[0]] == [1.0] * 3


@pytest.mark.parametrize("task", ["cryptarithm", "chain_sum", "gcd"])
def test_a_few_held_out_problems_are_found(task: str) -> None:
    assert len(read_problems([f"reasoning_gym:{task}?size=8"], split="test", limit=2)) == 2
