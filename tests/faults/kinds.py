"""The kinds of faults: where each strikes, and what the struck run must say and do."""

import random
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from rlvr.checkpoint.storage import list_checkpoints

from . import injuries as i
from .forking import Ended, Hook
from .lab import Disk, Lab, Wire
from .strike import Case, Maker, all_ended

PHASES = ("start", "rollout", "reward", "score", "update", "checkpoint", "evaluation")


def _one(kills: int) -> Callable[[list[Ended]], str]:
    """The killed rank is dead; the others name it, or had ended."""

    def check(ended: list[Ended]) -> str:
        if ended[kills].status not in (-signal.SIGKILL, 0):
            return f"rank {kills} was to be killed and ended with {ended[kills].status}"
        for e in ended:
            if e.rank != kills and e.status != 0 and (e.status != 2 or "--resume" not in e.said):
                return f"rank {e.rank} ended with {e.status} and does not say how to go on"
            if e.rank != kills and kills and e.status == 2 and f"rank {kills} on" not in e.said:
                return f"rank {e.rank} does not name rank {kills}"
        return ""

    return check


def kill(phase: str) -> Maker:
    """SIGKILL of a process of the run."""

    def make(lab: Lab, rng: random.Random, folder: Path) -> Case:
        moment = i.draw_moment(lab.visits, rng, phase, rng.randrange(lab.processes))
        return Case(i.at(moment, i.kill_self), str(moment), _one(moment.rank))

    return make


def killed_again_and_again(lab: Lab, rng: random.Random, folder: Path) -> Case:
    """SIGKILL five times in a row, each soon after the run went on."""
    phases = [v.phase for v in lab.visits[0] if v.number <= 2]
    early = [[v for v in visits if v.number <= 2] for visits in lab.visits]
    moments = [i.draw_moment(early, rng, rng.choice(phases), rng.randrange(lab.processes)) for _ in range(5)]
    first, *more = [i.at(moment, i.kill_self) for moment in moments]
    return Case(first, "; ".join(map(str, moments)), _one(moments[0].rank), more=more)


def slow_and_killed(lab: Lab, rng: random.Random, folder: Path) -> Case:
    """SIGKILL while a checkpoint is being written, slowly."""
    moment = i.draw_moment(lab.visits, rng, "checkpoint", 0)
    moment = i.Moment(0, "checkpoint", moment.visit, rng.uniform(0.0, 0.5))
    return Case(i.at(moment, i.kill_self, i.slow_flushes), str(moment), _one(0))


def terminate(lab: Lab, rng: random.Random, folder: Path) -> Case:
    """SIGTERM to one process: all save and stop."""
    phase = rng.choice([p for p in PHASES if any(v.phase == p for v in lab.visits[0])])
    moment = i.draw_moment(lab.visits, rng, phase, rng.randrange(lab.processes))

    def check(ended: list[Ended]) -> str:
        if all(e.status == 0 for e in ended):  # it came too late
            return ""
        if ended[moment.rank].status == -signal.SIGTERM:  # before the loop began to listen
            return _one_terminated(ended, moment.rank)
        wrong = all_ended(ended, 128 + signal.SIGTERM)
        return wrong or ("" if "--resume" in ended[moment.rank].said else "it does not say how to go on")

    return Case(i.at(moment, i.ask_to_stop), str(moment), check)


def _one_terminated(ended: list[Ended], rank: int) -> str:
    return "".join(f"rank {e.rank} ended with {e.status}; " for e in ended if e.rank != rank and e.status not in (0, 2))


def _of_loop(lab: Lab) -> list[str]:
    """Phases that come again and again."""
    return [p for p in ("rollout", "score", "update") if any(v.phase == p for v in lab.visits[0])]


def _writing(lab: Lab) -> list[str]:
    """Phases in which, or before which, something is written."""
    return [p for p in ("start", "rollout", "update", "checkpoint") if any(v.phase == p for v in lab.visits[0])]


def full_disk(lab: Lab, rng: random.Random, folder: Path) -> Case:
    """A file system without room, from some moment on (rank 0, which alone writes)."""
    disk = Disk(folder)
    phase = rng.choice(_writing(lab))
    moment = i.draw_moment(lab.visits, rng, phase, 0)
    moment = i.Moment(0, phase, moment.visit, 0.0)  # at once: in the midst of Python's own writes it may come too late
    free = rng.choice((0, 4096, rng.randrange(200_000)))

    def check(ended: list[Ended]) -> str:
        if all(e.status == 0 for e in ended):  # what was left sufficed
            return ""
        wrong = all_ended(ended, 2)
        return wrong or ("" if "can't" in ended[0].said else "it does not say what can't be written")

    def mend(path: Path) -> None:
        (path / "filler").unlink(missing_ok=True)
        kept = lab.root / "kept"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(path, kept)
        disk.close()
        shutil.rmtree(path)
        kept.rename(path)

    act = i.fill_disk(folder, free)
    return Case(i.at(moment, act), f"{moment}, {free} bytes left", check, mend)


def file_limit(lab: Lab, rng: random.Random, folder: Path) -> Case:
    """Writes fail from some moment on, by a limit on the size of files; needs no rights."""
    phase = rng.choice(_writing(lab))
    moment = i.draw_moment(lab.visits, rng, phase, 0)
    most = rng.choice((0, 1000, rng.randrange(40_000)))

    def check(ended: list[Ended]) -> str:
        if all(e.status == 0 for e in ended):
            return ""
        return all_ended(ended, 2) or ("" if "can't" in ended[0].said else "it does not say what can't be written")

    return Case(i.at(moment, i.limit_files(most)), f"{moment}, files up to {most} bytes", check)


def damaged(how: str) -> Maker:
    """The newest checkpoint of a killed run is damaged."""

    def make(lab: Lab, rng: random.Random, folder: Path) -> Case:
        phase = rng.choice([p for p in ("rollout", "update") if _late(lab, p)])
        moment = i.draw_moment(lab.visits, rng, phase, rng.randrange(lab.processes), _late(lab, phase))
        names: list[str] = []

        def mend(path: Path) -> None:
            newest = list_checkpoints(path)[-1]
            names.append(i.damage(newest, how, rng))

        def resumed(ended: list[Ended]) -> str:
            told = (
                "is damaged" in ended[0].said and names[0] in ended[0].said and "going on from step-" in ended[0].said
            )
            return "" if told else f"it does not say that {names[0]} is damaged"

        return Case(i.at(moment, i.kill_self), f"{how}, killed at {moment}", _one(moment.rank), mend, resumed)

    return make


def _late(lab: Lab, phase: str) -> int:
    """From which visit of a phase on two checkpoints are there; 0 if it has none."""
    return {"ppo": {"rollout": 3, "update": 5}}.get(lab.name, {"update": 7}).get(phase, 0)


def all_damaged(lab: Lab, rng: random.Random, folder: Path) -> Case:
    """Every checkpoint of a killed run is damaged."""
    moment = i.draw_moment(lab.visits, rng, "update", 0, _late(lab, "update"))

    def mend(path: Path) -> None:
        for checkpoint in list_checkpoints(path):
            i.damage(checkpoint, rng.choice(("truncation", "bit flip", "deletion")), rng)

    def resumed(ended: list[Ended]) -> str:
        return all_ended(ended, 2) or (
            "" if "no other is whole" in ended[0].said else "it does not say that none is whole"
        )

    return Case(i.at(moment, i.kill_self), str(moment), _one(0), mend, resumed, exact=False)


def reward_worker(which: str) -> Maker:
    """SIGKILL of a reward worker or of the process that forks them: the run goes on by itself."""

    def make(lab: Lab, rng: random.Random, folder: Path) -> Case:
        moment = i.draw_moment(lab.visits, rng, rng.choice(("rollout", "reward")), rng.randrange(lab.processes))
        act = i.kill_reward_worker if which == "worker" else i.kill_zygote
        return Case(i.at(moment, act), str(moment), lambda ended: all_ended(ended, 0))

    return make


def broken_reward(how: str) -> Maker:
    """The reward function breaks from some batch on."""

    def make(lab: Lab, rng: random.Random, folder: Path) -> Case:
        moment = i.draw_moment(lab.visits, rng, "rollout", 0, 2)
        moment = i.Moment(0, "rollout", moment.visit, 0.0)

        def check(ended: list[Ended]) -> str:
            named = "'letters' failed on" in ended[0].said
            return all_ended(ended, 2) or ("" if named else "it does not name the function")

        return Case(i.at(moment, i.write_file(lab.flag, how)), f"{how} from {moment}", check)

    return make


def frozen(lab: Lab, rng: random.Random, folder: Path) -> Case:
    """A process that stops working without ending: the others name it when their patience is over."""
    moment = i.draw_moment(lab.visits, rng, rng.choice(_of_loop(lab)), rng.randrange(lab.processes))

    def check(ended: list[Ended]) -> str:
        for e in ended:
            if e.rank != moment.rank and (e.status != 2 or f"rank {moment.rank} on" not in e.said):
                return f"rank {e.rank} does not name rank {moment.rank}"
        return ""

    return Case(_freezing(moment, lab), str(moment), check)


def _freezing(moment: i.Moment, lab: Lab) -> Hook:
    """Asleep for longer than the others wait, then dead."""

    def act() -> None:
        # SIGSTOP would need somebody to end it; a main thread that sleeps is as good.
        time.sleep(lab.timeout_s + 8)
        i.kill_self()

    return i.at(i.Moment(moment.rank, moment.phase, moment.visit, 0.0), act)


def network_cut(wire: Wire, lasting: bool) -> Maker:
    """The wire between two machines is cut, for good or for a moment."""

    def make(lab: Lab, rng: random.Random, folder: Path) -> Case:
        moment = i.draw_moment(lab.visits, rng, rng.choice(_of_loop(lab)), 1)

        def act() -> None:
            wire.cut()
            if not lasting:
                time.sleep(0.3)
                wire.mend()

        def check(ended: list[Ended]) -> str:
            if not lasting:
                return all_ended(ended, 0)
            wrong = all_ended(ended, 2)
            return wrong or "".join(f"rank {e.rank} says nothing; " for e in ended if "--resume" not in e.said)

        return Case(i.at(moment, act), str(moment), check, lambda path: wire.mend())

    return make
