"""`grade`, `check_gold` and `equivalent` work where little of the stack is left, in threads with small ones, and at any depth."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from processor_time import forget_verdicts

from rewards import grade
from rewards.grade import check_gold
from rewards.maths import equivalent, readable
from rewards.maths.equivalence import _read

DEEP = [
    "(" * 49 + "x" + ")" * 49,
    r"\frac{1}{1+" * 20 + "x" + "}" * 20,
    "2^{" * 40 + "x" + "}" * 40,
    "-" * 45 + "x",
    r"\sin(" * 20 + "1" + ")" * 20,
    "1/2" + "/3" * 45,
    r"\{" * 40 + "1" + r"\}" * 40,
    "(" * 40 + "1,2" + "),3" * 40,
]
TOO_DEEP = [
    "42" + "!" * 330,
    "x" + "!" * 500,
    "1" + "/3" * 300,
    "x" + "/x" * 300,
    r"\sqrt " * 300 + "2",
    "[0,3" + "!" * 400 + "]",
    r"\text{" + "and " * 400 + "}",
    "5" + " m^2" * 400,
    "A. " * 90 + "7",
]


def verdicts() -> list[Any]:
    forget_verdicts()
    found: list[Any] = []
    for text in DEEP + TOO_DEEP:
        found += [grade(f"\\boxed{{{text}}}", gold).status for gold in ("42", "x", text + "+y")]
        found += [check_gold(text), equivalent(text, text + "+0"), readable(text)]
    return found


def with_frames_left(count: int, call: Callable[[], Any]) -> Any:
    """The call's result, where the stack has so many frames left for what it calls."""

    def deeper(frames: int, call: Callable[[], Any]) -> Any:
        return deeper(frames - 1, call) if frames else call()

    most = sys.getrecursionlimit()
    while True:
        try:
            deeper(most, lambda: None)
            break
        except RecursionError:
            most -= 1
    return deeper(most - count, call)


@pytest.mark.parametrize("left", [500, 100, 60, 25])
def test_a_verdict_is_the_same_at_the_end_of_the_stack(left) -> None:
    assert with_frames_left(left, verdicts) == verdicts()


def test_hardly_a_frame_is_needed() -> None:
    """Where none is left at all, nothing can be called."""
    forget_verdicts()
    assert with_frames_left(2, lambda: grade("\\boxed{x+x}", "2x").status) == "correct"
    assert with_frames_left(2, lambda: equivalent("x+x", "2x"))[0]
    assert with_frames_left(2, lambda: check_gold("2x"))


def test_nothing_wrong_is_remembered_of_a_stack_that_ended() -> None:
    forget_verdicts()
    text = DEEP[0]
    with pytest.raises(RecursionError):
        with_frames_left(100, lambda: _read(text))
    assert _read(text)[0] is not None


def test_a_thread_with_a_small_stack() -> None:
    wanted, found = verdicts(), []
    before = threading.stack_size(64 * 1024)
    try:
        thread = threading.Thread(target=lambda: found.append(verdicts()))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found == [wanted]


@pytest.mark.parametrize("text", TOO_DEEP, ids=lambda text: text[:12])
def test_what_is_too_deep_is_wrong(text) -> None:
    for gold in ("42", "x", "x=5", "[0,1]", "1,2"):
        assert grade(f"\\boxed{{{text}}}", gold).status == "wrong"
        assert grade(f"\\boxed{{x={text}}}", gold).status == "wrong"
