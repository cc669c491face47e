"""The curriculum: what is drawn follows what was seen, and nothing else."""

import json
from collections import Counter
from collections.abc import Mapping

import pytest

from rlvr.data.curriculum import Arm, Curriculum, arms_of, in_zone, near_target, progress
from rlvr.data.problems import Problem
from rlvr.data.sampling import PromptSampler
from rlvr.errors import UserError

ARMS = ["easy"] * 10 + ["right"] * 10 + ["hard"] * 20
SUCCESS = {"easy": 1.0, "right": 0.5, "hard": 0.0}


def made(kind: str, arms: list[str] = ARMS, batch: int = 10, **options) -> Curriculum:
    return Curriculum(arms, batch, 0, kind, **options)


def play(curriculum: Curriculum, steps: int, success: Mapping[str, float] = SUCCESS) -> Counter[str]:
    """Collect steps in which each arm is solved as often as `success` says; returns what was drawn."""
    drawn: Counter[str] = Counter()
    for _ in range(steps):
        batch = curriculum.indices()
        drawn.update(curriculum.arm_of[index] for index in batch)
        curriculum.observe({index: (8, round(8 * success[curriculum.arm_of[index]])) for index in batch})
    return drawn


@pytest.mark.parametrize("kind", ["target_success", "zone"])
def test_what_teaches_nothing_is_left_alone(kind: str) -> None:
    curriculum = made(kind)
    play(curriculum, 5)
    drawn = play(curriculum, 20)
    assert drawn["right"] > 120, "the most of 200"
    assert drawn["easy"] > 0 and drawn["hard"] > 0, "an even share stays"


def test_the_target_is_what_is_asked_for() -> None:
    arms = [f"{percent} %" for percent in (10, 30, 50, 70, 90) for _ in range(10)]
    success = {f"{percent} %": percent / 100 for percent in (10, 30, 50, 70, 90)}
    for target, best in ((0.1, "10 %"), (0.7, "70 %")):
        curriculum = made("target_success", arms, target=target, even=0.0)
        play(curriculum, 30, success)
        shares = curriculum.shares()
        assert max(shares, key=shares.__getitem__) == best


def test_progress_is_change_in_either_direction() -> None:
    curriculum = made("learning_progress", even=0.0, memory=4)
    play(curriculum, 30, {"easy": 0.5, "right": 0.5, "hard": 0.0})
    play(curriculum, 6, {"easy": 1.0, "right": 0.5, "hard": 0.0})
    shares = curriculum.shares()
    assert max(shares, key=shares.__getitem__) == "easy"
    for _ in range(100):  # long ago
        curriculum.observe({0: (8, 8), 10: (8, 4), 20: (8, 0)})
    shares = curriculum.shares()
    assert shares["easy"] < 0.4


def test_what_was_solved_comes_back_as_it_is_forgotten() -> None:
    arm = Arm()
    arm.add(400, 400)
    assert in_zone(arm, 0.5) == 0
    arm = arm.at(40, memory=10)
    assert (arm.tries, arm.slow_tries) == (25, 200) and in_zone(arm, 0.5) == 1


def test_what_is_not_known_is_worth_looking_at() -> None:
    new, seen = Arm(), Arm()
    seen.add(100, 100)
    for worth in (near_target, progress, in_zone):
        assert worth(new, 0.5) > worth(seen, 0.5)


def test_all_solved_or_none_is_drawn_evenly() -> None:
    curriculum = made("zone", memory=1e9)
    play(curriculum, 60, {"easy": 1.0, "right": 1.0, "hard": 1.0})
    assert curriculum.shares() == {"easy": 0.25, "right": 0.25, "hard": 0.5}


@pytest.mark.parametrize("kind", ["target_success", "learning_progress", "zone"])
def test_it_goes_on_where_it_was_stopped(kind: str) -> None:
    straight, stopped = made(kind), made(kind)
    play(straight, 7)
    play(stopped, 7)
    resumed = made(kind)
    resumed.load_state_dict(json.loads(json.dumps(stopped.state_dict())))
    assert [play(straight, 1) for _ in range(9)] == [play(resumed, 1) for _ in range(9)]
    assert straight.state_dict() == resumed.state_dict()


def test_looking_changes_nothing() -> None:
    seen, unseen = made("target_success"), made("target_success")
    for _ in range(5):
        play(seen, 1)
        seen.metrics(), seen.shares(), seen.state_dict()
        play(unseen, 1)
    assert seen.state_dict() == unseen.state_dict()


def test_any_number_of_processes_draws_the_same() -> None:
    whole, ranks = made("zone"), [made("zone") for _ in range(2)]
    parts = [sampler.indices(rank, 2) for rank, sampler in enumerate(ranks)]
    assert whole.indices() == [index for pair in zip(*parts, strict=True) for index in pair]


def test_no_item_comes_twice_in_a_batch_unless_there_are_too_few() -> None:
    curriculum = made("target_success", batch=40)
    assert sorted(curriculum.indices()) == list(range(40))
    each = made("zone", [str(index) for index in range(30)], batch=20)
    for _ in range(5):
        assert len(set(each.indices())) == 20
    few = made("zone", ["a", "b", "b"], batch=7)
    assert Counter(few.indices()).most_common()[-1][1] >= 2


def test_within_an_arm_each_comes_once_a_pass() -> None:
    curriculum = made("zone", ["a"] * 5 + ["b"], batch=1, even=1.0)
    drawn = [index for _ in range(40) for index in curriculum.indices() if index < 5]
    assert sorted(drawn[:5]) == sorted(drawn[5:10]) == list(range(5))


def test_other_arms_or_none_are_refused() -> None:
    state = made("zone").state_dict()
    with pytest.raises(UserError, match="without this curriculum; resume with the --curriculum"):
        made("zone", ["x"] * 20 + ["y"] * 20).load_state_dict(
            {**state, "curriculum": {"step": 1, "known": {"easy": [0] * 6}}}
        )
    with pytest.raises(UserError, match="without this curriculum"):
        made("zone").load_state_dict(PromptSampler(40, 10, 0).state_dict())
    with pytest.raises(UserError, match="position in the data is none"):
        PromptSampler(40, 10, 0).load_state_dict(state)


def test_curves() -> None:
    curriculum = made("target_success")
    play(curriculum, 10)
    found = curriculum.metrics()
    assert found["curriculum/known"] == 1 and found["curriculum/easy/success"] > 0.9
    assert sum(value for name, value in found.items() if name.endswith("/share")) == pytest.approx(1)
    many = made("zone", [str(index) for index in range(30)])
    assert set(many.metrics()) == {"curriculum/known", "curriculum/worth"}


def problem(number: int, **columns) -> Problem:
    return Problem(str(number), "?", "1", columns, f"file:{number}", f"set {number % 2}")


def test_arms() -> None:
    problems = [problem(number, level=number // 2) for number in range(4)]
    assert arms_of(problems, "dataset") == ["set 0", "set 1", "set 0", "set 1"]
    assert arms_of(problems, "level") == ["0", "0", "1", "1"] and arms_of(problems, "problem") == list("0123")
    with pytest.raises(UserError, match="file:0 has no such column; it has level.*Did you mean 'level'"):
        arms_of(problems, "levle")
    with pytest.raises(UserError, match="all problems are of one kind, 'set 0', so there is nothing to choose"):
        arms_of(problems[::2], "dataset")
