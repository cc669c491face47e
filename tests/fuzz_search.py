"""Looking for cases that the grader gets wrong: `fault` judges one, `search` finds and shrinks one among many."""

import signal
import time
from collections.abc import Callable
from types import FrameType

from fuzz_cases import Case
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from processor_time import seconds

from rewards import STATUSES, Tags, equivalent, grade

CPU_S = 1.0
"""Processor time that a verdict may take."""
HANG_S = 5.0
"""Processor time after which it is given up."""


class Hang(BaseException):
    """Nothing that the grader catches."""


def fault(case: Case) -> str | None:
    """What the grader does wrong; None if nothing.

    A verdict that takes too long is asked for again, as a machine that is shared is slow at times.
    """
    verdicts: list[bool] = []
    try:
        spent_s = seconds(lambda: verdicts.append(_limited(lambda: _verdict(case))), limit_s=CPU_S)
    except Hang:
        return f"takes more than {HANG_S:g} s"
    # Any exception of the grader is what is looked for.
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"[:200]
    if spent_s >= CPU_S:
        return f"takes {spent_s:.1f} s"
    if case.right is None or verdicts[-1] == case.right:
        return None
    return "is paid" if verdicts[-1] else "is refused"


def _verdict(case: Case) -> bool:
    if case.identical:
        return equivalent(case.answer, case.gold)[0]
    outcome = grade(case.response, case.gold, tags=None if case.whole else Tags.default(), question=case.question)
    assert outcome.status in STATUSES, outcome
    return outcome.correct


def _limited(call: Callable[[], bool]) -> bool:
    """Call it, for at most `HANG_S` of processor time."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, HANG_S)
    try:
        return call()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def search(
    strategy: st.SearchStrategy[Case],
    first: int,
    examples: int,
    known: Callable[[Case], bool],
    until_s: float = float("inf"),
) -> tuple[Case | None, int]:
    """A case that the grader gets wrong, as small as it gets, and how many were tried.

    Args:
        strategy: of the cases.
        first: the seed.
        examples: how many to try.
        known: faults of such cases are no news.
        until_s: by `time.monotonic`; no new case is tried afterwards.
    """
    found: list[Case] = []
    tried = 0

    @seed(first)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @given(strategy)
    def look(case: Case) -> None:
        nonlocal tried
        if time.monotonic() > until_s and not found:
            return
        tried += 1
        if not known(case) and fault(case) is not None:
            found.append(case)
            raise AssertionError

    try:
        look()
    except AssertionError:
        return found[-1], tried  # hypothesis replays the smallest one last
    except Flaky:  # a verdict that depends on more than the case, such as what was graded before: found all the same
        return min(found, key=lambda case: len(case.line())), tried
    return None, tried
