"""Environments in worker processes: their state goes along from turn to turn, and what they do wrong costs their own episode."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rewards import Outcome, RewardPool, Sample, Score, UserError, resolve, resolve_environment
from rewards.environment import Answer, read_answer

FILE = str(Path(__file__).parents[1] / "naughty_environment.py")


def turn(text: str, state: bytes = b"", **problem: Any) -> Sample:
    said = {"question": "q", "gold": "5", "seed": 1, **problem}
    return Sample(text, None, columns={"problem": said, "state": state})


@pytest.fixture(scope="module")
def pool() -> Iterator[RewardPool]:
    environments = [resolve_environment(f"{FILE}:{name}") for name in ("Obedient", "Guess")]
    # A minute: the machine may be busy; what hangs is in a test of its own.
    with RewardPool(environments, workers=2, timeout_s=60, memory_limit_bytes=2**28, max_failed_share=1.0) as pool:
        yield pool


def answers(pool: RewardPool, samples: list[Sample], which: int = 0) -> list[Answer | Outcome]:
    return [read_answer(score) for score in pool.score(samples)[which]]


def test_state_goes_from_worker_to_worker(pool) -> None:
    """Six episodes over three turns, in whichever worker has time: each remembers its own turns."""
    states = [b""] * 6
    for number in range(3):
        said = answers(pool, [turn(f"a{i}-{number}", state) for i, state in enumerate(states)])
        for i, answer in enumerate(said):
            assert isinstance(answer, Answer) and not answer.done and answer.scores == {}
            assert answer.observation == " ".join(f"a{i}-{earlier}" for earlier in range(number + 1))
        states = [answer.state for answer in said]
    (end,) = answers(pool, [turn("end", states[0])])
    assert end == Answer("the end", True, {"score": 0.5}, b"")


def test_random_numbers_of_an_environment_go_on(pool) -> None:
    first, same, other = answers(pool, [turn("1"), turn("1"), turn("1", seed=2)], which=1)
    assert first.observation == same.observation != other.observation
    second = answers(pool, [turn("1", first.state), turn("1", same.state)], which=1)
    assert second[0].observation == second[1].observation != first.observation
    (won,) = answers(pool, [turn("5", second[0].state, question="gold")], which=1)
    assert won.done and won.observation == "yes, q" and won.scores == {"right": 1.0, "tries": pytest.approx(-0.3)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("raise no such key", "ValueError: no such key"),
        ("exit", "SystemExit: 3"),
        ("die", "status 4"),
        ("eat", "MemoryError"),
        ("swell", r"it holds 33,\d+,\d+ bytes after its turn"),
        ("lock", "TypeError: cannot pickle"),
        ("nothing", r"step must return \(observation, done, scores\), not None"),
        ("text", "step must return .* not 'only text'"),
        ("pair", "step must return"),
        ("number", r"an observation must be text, not 3 \(int\)"),
        ("bytes", r"must be text, not b'x' \(bytes\)"),
        ("long", "an observation of 10,000,000 characters; at most 100,000"),
        ("half", "surrogates not allowed"),
        ("words", "the score 'good' must be a finite number, not 'very'"),
        ("nan", "the score 'score' must be a finite number, not nan"),
    ],
)
def test_what_goes_wrong_is_said_and_harms_nobody_else(text, message, pool) -> None:
    before = pool.failures["Obedient"].error
    first, bad, last = answers(pool, [turn("a"), turn(text), turn("b")])
    assert isinstance(bad, Outcome) and bad.status == "error"
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(bad.message)
    assert (first.observation, last.observation) == ("a", "b")
    assert pool.failures["Obedient"].error == before + 1


def test_reset_may_go_wrong_too(pool) -> None:
    (bad,) = answers(pool, [turn("a", question="reset raise at once")])
    assert isinstance(bad, Outcome) and bad.message == "ValueError: at once"


def test_one_that_hangs_is_ended_at_its_deadline() -> None:
    with RewardPool([resolve_environment(f"{FILE}:Obedient")], workers=1, timeout_s=2.0) as pool:
        hung, other = answers(pool, [turn("hang"), turn("a")])
    assert isinstance(hung, Outcome) and hung.status == "timed_out"
    assert other.observation == "a"


def test_one_that_fails_too_often_is_named() -> None:
    with RewardPool([resolve_environment(f"{FILE}:Obedient")], workers=1, min_failures=3) as pool:
        with pytest.raises(UserError, match="environment 'Obedient' failed on .* the last: ValueError: again"):
            pool.score([turn("raise again")] * 4)


class Local:
    """Not in a file that a worker could import by name."""

    def reset(self, problem: Any) -> None:
        self.turns = 0

    def step(self, text: str) -> tuple[str, bool, None]:
        self.turns += 1
        return str(self.turns), False, None


def test_a_class_may_be_given_itself() -> None:
    with RewardPool([resolve_environment(Local)], workers=1) as pool:
        (first,) = answers(pool, [turn("a")])
        (second,) = answers(pool, [turn("a", first.state)])
    assert (first.observation, second.observation) == ("1", "2")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "guess",
            "--environment guess: give calculator, python, textarena, openenv, verifiers, path/to/file.py:Class or package.module:Class",
        ),
        (f"{FILE}:NotOne", "NotOne is no environment: it must be a class with the methods reset"),
        (f"{FILE}:not_one", "not_one is no environment"),
        (f"{FILE}:Gues", "defines no function 'Gues'; it defines: .*Guess"),
        ("/no/such/file.py:Guess", "there is no file /no/such/file.py"),
    ],
)
def test_what_is_no_environment(spec, message) -> None:
    with pytest.raises(UserError, match=message):
        resolve_environment(spec)


def test_an_environment_is_no_reward_function() -> None:
    from rewards.call import score

    with pytest.raises(UserError, match="environment 'Guess' asks for 'problem', which is not available"):
        score(resolve(f"{FILE}:Guess"), [Sample("a", None)])


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null", "[" * 100_000, '{"observation": 1, "done": false, "scores": {}, "state": "YQ=="}',
        '{"observation": "a", "done": false, "scores": {}, "state": ""}', '{"observation": "a", "done": true, "scores": {}, "state": "YQ=="}',
        '{"observation": "a", "done": false, "scores": {"a": 1e999}, "state": "YQ=="}', '{"observation": "a", "done": false, "scores": {}, "state": "??"}',
    ],
)  # fmt: skip
def test_a_worker_is_not_taken_at_its_word(text) -> None:
    outcome = read_answer(Score(None, text=text))
    assert isinstance(outcome, Outcome) and outcome.status == "error" and "sent no answer" in outcome.message
