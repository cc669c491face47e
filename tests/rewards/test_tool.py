"""Tools: calls and errors are counted, what is read of them is bounded, and what can't work is refused before it begins."""

import pytest

from rewards import RewardPool, Sample, Tags, UserError, resolve_environment
from rewards.environment import read_answer
from rewards.python import bubblewrap
from rewards.python.environment import Python
from rewards.tool import Tool, shown


def tool(**options: object) -> Python:
    made = Python(**options)
    made.reset({"tags": Tags.default()})
    return made


def test_programs_are_answered_in_order_and_counted() -> None:
    said, done, scores = tool(cost=0.25).step("<call>2 ** 10</call> so <call>print(1)\nx</call><call>y = 1</call>")
    assert said == "1024\n1\nerror: line 2: NameError: name 'x' is not defined\n(no output)" and not done
    assert scores.pop("_steps") > 10 and scores == {"_calls": 3, "_errors": 1, "cost": -0.75}
    assert tool().step("<answer>4</answer>") == ("", True, {"_calls": 0, "_errors": 0})


def test_the_calls_of_a_turn_share_a_budget() -> None:
    endless, fine = "<call>while True: pass</call>", "<call>1</call>"
    said, _, scores = tool(steps=5000).step(fine + endless + fine)
    assert said.splitlines() == ["1", *["error: more work than a program may take"] * 2]
    assert scores["_errors"] == 2 and scores["_steps"] == pytest.approx(5000, rel=0.01)
    said, _, scores = tool(max_calls=2).step(fine * 5)
    assert said == "1\n1" and scores["_calls"] == 5, "further ones are counted, and not answered"


def test_what_is_read_is_bounded() -> None:
    said, _, scores = tool(max_characters=20).step("<call>print('a' * 500 + 'z')</call>")
    assert said == "a" * 10 + "\n... (481 characters left out)\n" + "a" * 9 + "z" and scores["_errors"] == 0
    assert shown("x\ny\tz", 9) == "x\ny\tz" and shown("\x00\x9b\ue000\U000e0001", 99) == "\\x00\\x9b\\ue000\\U000e0001"


def test_it_goes_on_in_whichever_worker_has_time() -> None:
    problem = {"question": "q", "gold": "6", "seed": 1, "tags": Tags.default()}
    options = {"Python": {"max_characters": 3, "steps": 1000}}
    with RewardPool([resolve_environment("python", options=options)], workers=1, timeout_s=60) as pool:
        state = b""
        for _ in range(2):
            ((score,),) = pool.score([Sample("<call>12345</call>", None, columns={"problem": problem, "state": state})])
            answer = read_answer(score)
            assert answer.observation == "12\n... (2 characters left out)\n5" and answer.scores["_calls"] == 1
            state = answer.state


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sandbox": "docker"}, "Python: sandbox is 'docker'; it must be one of interpreter, bubblewrap"),
        ({"steps": 0}, "Python: steps is 0; it must be a number above 0, at most 1e"),
        ({"seconds": float("nan")}, "Python: seconds is nan"),
        ({"seconds": "5"}, "Python: seconds is '5'"),
        ({"max_calls": True}, "Python: max_calls is True; it must be a whole number from 1 to 10000"),
        ({"max_characters": 10**6}, "Python: max_characters is 1000000"),
    ],
)
def test_options_out_of_range_are_refused_before_there_is_an_episode(options, message) -> None:
    with pytest.raises(UserError, match=message):
        resolve_environment("python", options={"Python": options})


def test_a_sandbox_that_does_not_work_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda _: None)
    bubblewrap.why_not.cache_clear()
    try:
        with pytest.raises(
            UserError, match="does not work here: bwrap is not installed .apt install bubblewrap.; leave it out"
        ):
            resolve_environment("python", options={"Python": {"sandbox": "bubblewrap"}})
        resolve_environment("python")
    finally:
        bubblewrap.why_not.cache_clear()


def test_a_sandbox_that_says_something_else_is_none(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where user namespaces are forbidden."""
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(bubblewrap.shutil, "which", lambda _: str(fake))
    bubblewrap.why_not.cache_clear()
    try:
        assert bubblewrap.why_not() == "trying it said: bwrap: setting up uid map: Permission denied"
    finally:
        bubblewrap.why_not.cache_clear()


def test_a_tool_needs_an_answer() -> None:
    made = Tool()
    made.reset({"tags": Tags.default()})
    with pytest.raises(NotImplementedError):
        made.step("<call>1</call>")
