"""One fault: strike a run, mend what lasts, let it go on, and compare its result with that of the undisturbed run."""

import random
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlvr.journal.journal import Journal
from rlvr.replay.repeat import first_difference

from .forking import Ended, Hook
from .lab import Lab, Result


@dataclass
class Case:
    """One fault.

    Attributes:
        hook: does it, in the run's processes.
        what: in words, for the log.
        struck: looks at the struck run; returns what is wrong with it, or "".
        mend: undo what lasts, between the strike and the next start. Its own damage (to checkpoints) is done here too.
        resumed: looks at the run after that, beyond the comparison.
        exact: the run after that must end with the weights and metrics of the undisturbed one, bit for bit; else it must
            refuse, and `resumed` looks at its message.
        limit_s: for the struck run.
        more: strikes at the runs that go on after the first, one after the other.
    """

    hook: Hook
    what: str
    struck: Callable[[list[Ended]], str]
    mend: Callable[[Path], None] = lambda folder: None
    resumed: Callable[[list[Ended]], str] = lambda ended: ""
    exact: bool = True
    limit_s: float = 60.0
    more: Sequence[Hook] = ()


Maker = Callable[[Lab, random.Random, Path], Case]


@dataclass(frozen=True)
class Outcome:
    """What came of a fault.

    Attributes:
        what: was done.
        struck: how the struck run ended: `killed`, `message`, `saved and stopped`, `went on`; `missed`: it was not struck.
        then: `exact` or `refused`: the run after it.
        problem: what is wrong with that; "" if nothing is.
    """

    what: str
    struck: str
    then: str
    problem: str


def strike(lab: Lab, make: Maker, rng: random.Random, folder: Path) -> Outcome:
    """Inject one fault into a new run in `folder`, mend, go on, and compare."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in (lab.flag, lab.mark):
        path.unlink(missing_ok=True)
    expected = lab.expected
    case = make(lab, rng, folder)
    try:
        ended = lab.run(folder, case.hook, case.limit_s)
        struck = _how(ended) if lab.mark.exists() else "missed"
        problem = untidy(ended) or case.struck(ended)
        for hook in () if problem else case.more:
            ended = lab.run(folder, hook, case.limit_s)
            problem = problem or untidy(ended)
    finally:
        case.mend(folder)
    lab.flag.unlink(missing_ok=True)
    if not problem and struck != "missed":
        ended = lab.run(folder)
        problem = untidy(ended) or case.resumed(ended)
        if not problem and case.exact:
            problem = all_ended(ended, 0) or _compare(expected, Result.of(folder))
            problem = problem or _compare_journals(lab.whole, folder) or _remains(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return Outcome(case.what, struck, "exact" if case.exact else "refused", problem and problem + _tail(ended))


def _how(ended: list[Ended]) -> str:
    statuses = {e.status for e in ended}
    if statuses & {-signal.SIGKILL, -signal.SIGTERM, None}:
        return "killed"
    words = {2: "message", 128 + signal.SIGTERM: "saved and stopped", 1: "ended by Ray"}
    return next((word for status, word in words.items() if status in statuses), "went on")


def _tail(ended: list[Ended]) -> str:
    return "".join(f"\n--- rank {e.rank}, status {e.status}\n{e.out[-1500:]}{e.err[-3000:]}" for e in ended)


def _compare(expected: Result, actual: Result) -> str:
    if expected.weights != actual.weights:
        return "the weights are others"
    return "" if expected.rows == actual.rows else "the metrics are others"


def _compare_journals(whole: Path, folder: Path) -> str:
    steps = Journal(whole).steps()
    if Journal(folder).steps() != steps:
        return "the journal has other steps"
    parted = first_difference(whole, folder) if steps else None  # supervised runs keep none
    if parted is None or parted.step is None:
        return ""
    return f"in step {parted.step} of the journal the {parted.what} are others"


def _remains(folder: Path) -> str:
    hidden = [p.name for p in folder.rglob(".*") if p.name != ".lock"]  # which stays: others may be waiting for it
    return f"remains in the folder: {', '.join(hidden)}" if hidden else ""


def untidy(ended: list[Ended]) -> str:
    for e in ended:
        if e.status is None:
            return f"rank {e.rank} hung"
        for word in ("Traceback", "ORPHANS", "LEFT BEHIND"):
            if word in e.err and (word == "ORPHANS" or e.status != -signal.SIGKILL):
                return f"rank {e.rank}: {word}"
    return ""


def all_ended(ended: list[Ended], *statuses: int) -> str:
    return "".join(f"rank {e.rank} ended with {e.status}; " for e in ended if e.status not in statuses)
