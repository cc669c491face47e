"""Some of the reward functions that misbehave; all of them: `python -m tests.misbehaviour`."""

import sys

import pytest

from .acts import ACTS, MISTAKES, POISONS
from .trial import IN_RUNS, run_with, trial

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the pool forks on Linux alone")
QUICK = (
    "kill its group", "a daemon", "close every descriptor", "rubbish into every descriptor", "truncate everything", "a deep frame", "overwrite shared memory", "a frame of many digits",
    "an error without words", "a status that equals all", "no stdout",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_the_pool_goes_on_and_nothing_is_left(name: str) -> None:
    assert trial(name).wrong == ""


@pytest.mark.usefixtures("process")
def test_a_run_goes_on_or_ends_with_a_message(tmp_path) -> None:
    assert run_with("kill itself", tmp_path).wrong == ""


def test_there_are_77_at_least_and_each_is_known() -> None:
    assert len(ACTS) >= 77 and {*QUICK, *IN_RUNS, *POISONS, *MISTAKES} <= set(ACTS)
    assert "good" not in ACTS
