"""Faults of runs on Ray: what the driver's cluster consists of is killed, process by process."""

import os
import random
from collections.abc import Callable
from pathlib import Path

from . import injuries as i
from .forking import Ended, descendants
from .forking import title as name
from .kinds import PHASES
from .lab import Lab
from .strike import Case, Maker, all_ended

Check = Callable[[list[Ended]], str]


def _kill(title: str, check: Check) -> Maker:
    """SIGKILL of a process of the cluster whose name begins with `title`, at any moment of the run."""

    def find() -> list[int]:
        return [process for process in descendants(os.getpid()) if name(process).startswith(title)]

    def make(lab: Lab, rng: random.Random, folder: Path) -> Case:
        drawn = i.draw_moment(lab.visits, rng, rng.choice([p for p in PHASES if _has(lab, p)]), 0)
        # Not in the driver's own thread, which may have to start first what is to be killed.
        moment = i.Moment(0, drawn.phase, drawn.visit, max(drawn.delay_s, 0.001))
        return Case(i.at(moment, lambda: i.kill_when_there(find, 60.0)), str(moment), check)

    return make


def _has(lab: Lab, phase: str) -> bool:
    return any(visit.phase == phase for visit in lab.visits[0])


def _named(who: str) -> Check:
    """The run names the dead and says how to go on, or had no need of it any more."""

    def check(ended: list[Ended]) -> str:
        if ended[0].status == 0:
            return ""
        said = ended[0].said
        goes_on = "--resume" in said or "There is no checkpoint yet" in said
        return all_ended(ended, 2) or ("" if who in said and goes_on else f"it does not name {who}, or how to go on")

    return check


def _ended_by_ray(ended: list[Ended]) -> str:
    """Ray itself ends the driver where there was need of the dead, with a message or without."""
    return all_ended(ended, 0, 1, 2)


KINDS: dict[str, Maker] = {
    "SIGKILL of the actor": _kill("ray::RayPPOActor", _named("process 0 of the actor died")),
    "SIGKILL of the critic": _kill("ray::RayPPOCritic", _named("process 0 of the critic died")),
    "SIGKILL of the reference model": _kill("ray::RayPPOInitial", _named("process 0 of the reference model died")),
    "SIGKILL of the reward worker on Ray": _kill("ray::RayRLVRReward", lambda ended: all_ended(ended, 0)),
    "SIGKILL of the raylet": _kill("raylet", _ended_by_ray),
    "SIGKILL of the head (GCS)": _kill("gcs_server", _ended_by_ray),
}
