"""What can be done to a process of a run, at a moment that a phase and a delay name. All of it runs in that process."""

import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .lab import MARK, Visit

Act = Callable[[], bool | None]  # False: there was nothing to do it to


@dataclass(frozen=True)
class Moment:
    """A moment of a run: the `visit`-th time that the process `rank` enters `phase`, and `delay_s` more."""

    rank: int
    phase: str
    visit: int
    delay_s: float

    def __str__(self) -> str:
        return f"rank {self.rank}, {self.phase} {self.visit} + {self.delay_s * 1000:.0f} ms"


def draw_moment(visits: list[list[Visit]], rng: random.Random, phase: str, rank: int, first: int = 1) -> Moment:
    """A random moment within a phase, from its `first` visit on."""
    chosen = rng.choice([v for v in visits[rank] if v.phase == phase and v.number >= first])
    return Moment(rank, phase, chosen.number, rng.choice([0.0, rng.uniform(0.0, chosen.seconds)]))


def at(moment: Moment, act: Act, prepare: Callable[[], None] = lambda: None) -> Callable[[int], None]:
    """A hook for `Launch`: prepare every process, and act in that of the moment. What was done leaves a mark."""

    def act_and_mark() -> None:
        mark = Path(os.environ[MARK])
        mark.touch()  # before, as some acts are the last
        if act() is False:
            mark.unlink()

    def hook(rank: int) -> None:
        prepare()
        if rank == moment.rank:
            _arm(moment, act_and_mark)

    return hook


def _arm(moment: Moment, act: Callable[[], None]) -> None:
    from rlvr.boost.health import StatusReporter

    plain, seen = StatusReporter.enter, [0]

    def enter(reporter: StatusReporter, phase: str) -> None:
        plain(reporter, phase)
        seen[0] += phase == moment.phase
        if phase == moment.phase and seen[0] == moment.visit:
            if moment.delay_s:
                timer = threading.Timer(moment.delay_s, act)
                timer.daemon = True
                timer.start()
            else:
                act()

    StatusReporter.enter = enter  # type: ignore[method-assign]


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ask_to_stop() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def kill_reward_worker() -> bool:
    """One of those that the zygote has forked; waits for one to be there."""
    return kill_when_there(lambda: [grandchild for child in children(os.getpid()) for grandchild in children(child)])


def kill_zygote() -> bool:
    """The process that forks the workers."""
    return kill_when_there(lambda: children(os.getpid()))


def kill_when_there(find: Callable[[], list[int]], limit_s: float = 5.0) -> bool:
    """The last of the processes found, as soon as there is one; whether there was."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := find():
            os.kill(found[-1], signal.SIGKILL)
            return True
        time.sleep(0.001)
    return False


def children(process: int) -> list[int]:
    """Of all its threads."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    except OSError:  # it has ended
        pass
    return found


def fill_disk(folder: Path, free_bytes: int) -> Act:
    """Leave `free_bytes` on the file system of `folder`."""

    def act() -> None:
        filler = os.open(folder / "filler", os.O_WRONLY | os.O_CREAT)
        state = os.fstatvfs(filler)
        os.posix_fallocate(filler, 0, max(1, state.f_bavail * state.f_frsize - free_bytes))
        os.close(filler)

    return act


def limit_files(most_bytes: int) -> Act:
    """No file of this process may grow beyond this; a write that would fails, as on a full disk."""

    def act() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))

    return act


def slow_flushes() -> None:
    """Every fsync of this process takes 30 ms more: checkpoints are long in the making. (The file system is as ever.)"""
    plain = os.fsync

    def slow(descriptor: int) -> None:
        time.sleep(0.03)
        plain(descriptor)

    os.fsync = slow


def write_file(path: Path, text: str) -> Act:
    return lambda: Path.write_text(path, text) and None


def damage(checkpoint: Path, how: str, rng: random.Random) -> str:
    """Cut, change or delete a random file of a checkpoint. Returns its name."""
    files = sorted(p for p in checkpoint.rglob("*") if p.is_file() and p.stat().st_size > 1)
    path = rng.choice(files)
    data = bytearray(path.read_bytes())
    if how == "truncation":
        path.write_bytes(data[: rng.randrange(len(data))])
    elif how == "bit flip":
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
    else:
        path.unlink()
    return str(path.relative_to(checkpoint))
