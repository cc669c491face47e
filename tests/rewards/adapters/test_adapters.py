"""Environments of other packages, each where it is installed: an episode in workers, with the limits of any environment.

uv run --isolated --with textarena pytest tests/rewards/adapters
"""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rewards import Outcome, RewardPool, Sample, UserError, resolve_environment
from rewards.adapters.game import Game, rows
from rewards.adapters.openenv import OpenEnv
from rewards.adapters.textarena import TextArena
from rewards.adapters.verifiers import Verifiers
from rewards.environment import Answer, read_answer
from rlvr.cli.main import main

ROOT = Path(__file__).parents[3]
OPENENV, TASKS = (Path(__file__).with_name(name) for name in ("openenv_games.py", "verifiers_tasks.py"))
KINDS = {"textarena": TextArena, "openenv": OpenEnv, "verifiers": Verifiers}


def needs(package: str) -> pytest.MarkDecorator:
    there = importlib.util.find_spec(package) is not None
    return pytest.mark.skipif(
        not there, reason=f"{package} is not installed: uv run --isolated --with {package} pytest"
    )


def lacks(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is not None, reason=f"{package} is installed")


def turn(row: dict[str, Any], text: str, state: bytes = b"") -> Sample:
    return Sample(text, None, columns={"problem": {**row, "gold": None, "seed": 1}, "state": state})


def played(name: str, *episodes: tuple[dict[str, Any], list[str]]) -> list[list[Answer]]:
    """The answers of each episode, turn by turn. Between turns an environment is bytes."""
    found: list[list[Answer]] = []
    with RewardPool([resolve_environment(name)], workers=1, timeout_s=120) as pool:
        for row, texts in episodes:
            answers: list[Answer] = []
            for text in texts:
                answer = read_answer(pool.score([turn(row, text, answers[-1].state if answers else b"")])[0][0])
                assert isinstance(answer, Answer), answer
                answers.append(answer)
            found.append(answers)
    return found


@pytest.mark.parametrize("name", [pytest.param(name, marks=lacks(name)) for name in KINDS])
def test_without_the_package_there_is_one_message(name) -> None:
    with pytest.raises(UserError, match=f"{name}.* can't be imported .*: pip install"):
        resolve_environment(name)
    done = subprocess.run(
        [sys.executable, "-m", "rewards.adapters", name, "x:y", "--count", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout == "" and re.fullmatch(r"error: .*pip install .*\n", done.stderr)


def test_rows_without_a_game_are_refused() -> None:
    with pytest.raises(UserError, match="TextArena needs rows with the columns game and game_seed: make them with"):
        TextArena().reset({"question": "q"})


class Dice(Game):
    """Throws as many dice as the text is long."""

    package = "random"

    def begin(self, game: str, seed: int) -> str:
        import random

        return f"{game} {random.random()}"

    def move(self, text: str) -> tuple[str, bool, dict[str, float]]:
        import random

        return "\x1b[2J" + str([random.randint(1, 6) for _ in text]), False, {}


def test_lots_go_on_where_they_were_and_nobody_elses_are_touched() -> None:
    import random

    first = next(rows(Dice, "dice", 1, first_seed=7))
    assert first == next(rows(Dice, "dice", 1, first_seed=7)) != next(rows(Dice, "dice", 1, first_seed=8))
    one, other = Dice(), Dice(max_characters=20)
    for game in (one, other):
        game.reset(first)
    random.seed(3)
    before = random.getstate()
    texts = []
    for text in ("aaaa", "bbb"):
        texts.append(one.step(text)[0])
        random.random()
        assert texts[-1] == Dice.step(other, text)[0] or len(texts[-1]) > 20
    assert texts[0].startswith("\\x1b[2J[") and texts[0] != texts[1]
    random.setstate(before)
    one.step("x")
    assert random.getstate() == before
    assert "characters left out" in other.step("z" * 50)[0]


@needs("textarena")
def test_a_game_of_textarena() -> None:
    row = next(rows(TextArena, "GuessTheNumber-v0", 1, first_seed=3))
    assert row == next(rows(TextArena, "GuessTheNumber-v0", 1, first_seed=3)) and "between 1 and 20" in row["question"]
    said = "You attempted an invalid move."
    games = [[f"[{guess}]" for guess in (10, number)] for number in range(1, 21) if number != 10]
    first, *_ = played("textarena", (row, ["[10]", "no number"]))
    assert said in first[1].observation and not first[1].done and first[1].scores == {}
    ends = [answers[-1] for answers in played("textarena", *((row, texts) for texts in games))]
    (won,) = [answer for answer in ends if answer.done]
    assert won.scores == {"score": 1.0, "_invalid": 0.0} and "guessed the correct" in won.observation
    target = ends.index(won) + 1 + (ends.index(won) >= 9)
    for number, answer in zip([n for n in range(1, 21) if n != 10], ends, strict=True):
        if number != target:
            assert answer.observation == f"The target number is {'lower' if number > target else 'higher'}."


@needs("textarena")
@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("GuessTheNumbr-v0", "textarena has no game 'GuessTheNumbr-v0'. Did you mean 'GuessTheNumber-v0'"),
        ("TicTacToe-v0", "textarena can't begin TicTacToe-v0 for one player: AssertionError: The number of players"),
    ],
)
def test_games_that_are_none_for_one_player(game, message) -> None:
    with pytest.raises(UserError, match=message):
        next(rows(TextArena, game, 1))


@needs("openenv")
def test_an_environment_of_openenv() -> None:
    row = next(rows(OpenEnv, f"{OPENENV}:Echo", 1, first_seed=2))
    assert row["question"] == "say something of 4 letters"
    other = next(rows(OpenEnv, f"{OPENENV}:Sum", 1))
    (one, two), (bad, good) = played(
        "openenv", (row, ["so <call>hello</call>", "word"]), (other, ["1 and 2", '{"a": 1, "b": 2}'])
    )
    assert (one.observation, one.done, one.scores) == ("hello", False, {"score": 0.0, "_errors": 0.0})
    assert (two.observation, two.done, two.scores) == ("word", True, {"score": 1.0, "_errors": 0.0})
    assert bad.observation.startswith("error: ") and bad.scores == {"_errors": 1.0} and not bad.done
    assert json.loads(good.observation) == {"total": 3, "of": [1, 2]} and good.done
    stairs = next(rows(OpenEnv, f"{OPENENV}:Stairs", 1))
    ((up, nowhere, down),) = played("openenv", (stairs, ["up", "sideways", '{"way": "down"}']))
    assert (up.observation, down.observation) == ("on step 1", "on step 0")
    assert nowhere.observation.startswith("error: ") and up.scores == {"score": -0.5, "_errors": 0.0}
    with pytest.raises(UserError, match="is no environment of OpenEnv"):
        next(rows(OpenEnv, f"{OPENENV}:Said", 1))


@needs("verifiers")
def test_a_task_of_verifiers() -> None:
    row = next(rows(Verifiers, f"{TASKS}:tasks", 1, first_seed=1))
    assert row["question"] == "1+1=?"
    told = next(rows(Verifiers, f"{TASKS}:tasks_with_a_system_prompt", 1, first_seed=1))
    assert told["question"] == "Be brief.\n\n1+1=?"
    (right,), (wrong,) = played("verifiers", (row, ["It is 2"]), (row, ["It is 3"]))
    assert (right.done, right.scores) == (True, {"right": 2.0, "_length": 7.0})
    assert wrong.scores == {"right": 0.0, "_length": 7.0}
    for name, message in (
        ("Task", "can't be called without arguments"),
        ("boxed_tasks", "needs a runtime of verifiers .for checked"),
        ("few_tasks", "has no task 1"),
    ):
        with pytest.raises(UserError, match=message):
            next(rows(Verifiers, f"{TASKS}:{name}", 1, first_seed=1))


@needs("textarena")
def test_a_row_that_is_damaged_is_the_users_mistake() -> None:
    with RewardPool([resolve_environment("textarena")], workers=1, timeout_s=120) as pool:
        with pytest.raises(UserError, match="textarena has no game 'x'"):
            pool.score([turn({"question": "q", "game": "x", "game_seed": 1}, "[1]")])


@needs("textarena")
def test_hostile_moves_are_moves() -> None:
    row = next(rows(TextArena, "GuessTheNumber-v0", 1))
    texts = ["", "\0", "[" * 10_000, "[99999999999999999999999]", "\u202e[1]", "{0.__class__}", "[٣]"]
    with RewardPool([resolve_environment("textarena")], workers=1, timeout_s=120, max_failed_share=1) as pool:
        for score in pool.score([turn(row, text) for text in texts])[0]:
            answer = read_answer(score)
            assert not isinstance(answer, Outcome) and len(answer.observation) < 5000 and "\0" not in answer.observation


GAMES = {"textarena": "GuessTheNumber-v0", "openenv": f"{OPENENV}:Stairs", "verifiers": f"{TASKS}:tasks"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs(name)) for name in KINDS])
def test_the_pages_commands_train(name, tmp_path, process, tiny_cache, monkeypatch) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "rewards.adapters", name, GAMES[name], "--count", "3"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    monkeypatch.chdir(tmp_path)
    Path("games.jsonl").write_bytes(made.stdout)
    small = "--pretrain tiny --num_episodes 1 --experience_batch_size 3 --train_batch_size 3 --max_new_tokens 12 --max_length 600"
    few = "--reward_workers 1 --num_threads 1 --no_progress --save_path run"
    assert (
        main(
            [
                "train",
                "--environment",
                name,
                "--prompt_dataset",
                "games.jsonl",
                "--max_turns",
                "3",
                *small.split(),
                *few.split(),
            ]
        )
        == 0
    )
    row = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])
    assert row["reward/environment/failed"] == 0 and 1 <= row["environment/turns"] <= 3
