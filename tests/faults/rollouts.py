"""Strike rollout workers, weights on their way to them, the actor that they come from, and the journal, and compare with the run that nothing
happened to.

    uv run python -m tests.faults.rollouts --count 200

Runs with two rollout workers, two episodes ahead and partial rollouts, all on one cluster: starting one for each fault, as `tests.faults` does
for what kills a driver, would take a minute each. Each fault strikes a new run at a random moment (from `--seed`). Where that stops the run, or
it is asked to stop besides, the same run is resumed. Its weights, its rows of metrics and its journal must be those of the run that nothing
happened to, bit for bit. Prints each fault, and at the end the table of docs/faults.md; the exit status is 0 if every outcome is right.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pytest  # noqa: E402
from ray_harness import Cast, cast_of_all, cluster, rows, same, settings  # noqa: E402
from saved_models import save_micro_model  # noqa: E402
from trainer_harness import StopAfter  # noqa: E402

from rlvr.api import train  # noqa: E402
from rlvr.config import Config, merge  # noqa: E402
from rlvr.errors import UserError  # noqa: E402
from rlvr.journal.journal import Journal  # noqa: E402
from rlvr.ray.cluster import import_ray  # noqa: E402
from rlvr.ray.groups import Size  # noqa: E402
from rlvr.replay.repeat import first_difference  # noqa: E402
from rlvr.run import assembly  # noqa: E402
from rlvr.trainer.base import Interrupted  # noqa: E402

from .injuries import damage  # noqa: E402

EPISODES = 4
SAFE_POINTS = 3 * EPISODES
"""Of a run: a collect step and two optimizer steps in each episode."""
LIMIT_S = 180
"""Of a run; one that takes longer hangs."""
ROLLOUT, ACTOR = ("rollout", Size(1, 2, 0)), ("actor", Size(1, 1, 0))
RUN = {
    "algo": {"estimator": "grpo", "kl_coef": 0.0},
    "rollout": {"generation_batch_size": 4},
    "reward": {"reward_functions": [f"{ROOT}/tests/plain_rewards.py:odd_letters"], "reward_workers": 0},
    "train": {"num_episodes": EPISODES, "lr": 0.01},
    "parallel": {"mixed_precision": "fp32", "dist_timeout": 5.0},
    "ray": {"num_rollout_workers": 2, "max_staleness": 2, "partial_rollout_tokens": 4},
    "ckpt": {"save_interval": 1},
    "eval": {"eval_interval": 0, "eval_samples": 1},
    "log": {"journal": EPISODES, "progress": False},
}


@dataclass
class Laboratory:
    """The cluster's processes, and where runs and marks lie."""

    cast: Cast
    model: str
    root: Path

    def config(self, folder: Path) -> Config:
        return settings(self.model, folder, remote=True, **RUN)

    @property
    def mark(self) -> Path:
        """A file that is there once the fault was done."""
        return self.root / "struck"

    def workers(self) -> list[Any]:
        """The rollout workers of now."""
        return list(self.cast.groups[ROLLOUT]._workers)

    def mend(self) -> None:
        """Undo what lasts; groups with a process that doesn't answer are not kept for the next run."""
        ray = import_ray()
        for worker in self.workers():
            _send(worker, signal.SIGCONT)
        for place, group in list(self.cast.groups.items()):
            handles = [worker.handle for worker in group._workers] if place == ROLLOUT else group.processes
            undo = [handle.__ray_call__.remote(_unharmed()) for handle in handles]
            try:
                ray.get(undo, timeout=60)
            except (ray.exceptions.RayError, TimeoutError):
                self.cast.end[place[0]](self.cast.groups.pop(place))


# What is done. To workers functions are sent whole, as this file is not there.


def _send(worker: Any, number: int) -> bool:
    """A signal to a rollout worker, if it has begun and lives."""
    ray = import_ray()
    begun, _ = ray.wait([worker.identity], timeout=0)
    with contextlib.suppress(ray.exceptions.RayError, ProcessLookupError):
        if begun:
            os.kill(ray.get(worker.identity)[1], number)
            return True
    return False


def _unharmed() -> Callable[[Any], None]:
    def mend(worker: Any) -> None:
        from rlvr.ray.splitting import SentWeight

        SentWeight.load_into = getattr(SentWeight, "unharmed", SentWeight.load_into)

    return mend


def _at_weight(act: str, count: int, mark: str) -> Callable[[Any], None]:
    """At the `count`-th weight that a worker loads from now on."""

    def arm(worker: Any) -> None:
        import os
        import signal
        import time
        from dataclasses import replace

        from rlvr.ray.splitting import SentWeight

        plain, left = SentWeight.load_into, [count]
        SentWeight.unharmed = plain

        def load_into(sent: Any, weight: Any) -> None:
            left[0] -= 1
            if left[0] == 0:
                open(mark, "w").close()
                if act == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if act == "delay":
                    time.sleep(1.5)
                if act == "corrupt":
                    data = sent.data.copy()
                    data[len(data) // 2] ^= 4
                    sent = replace(sent, data=data)
            plain(sent, weight)

        SentWeight.load_into = load_into

    return arm


Act = Callable[[Laboratory, random.Random], None]


def signals(count: int, *numbers: int) -> Act:
    """To so many rollout workers; some time passes between two."""

    def act(lab: Laboratory, chance: random.Random) -> None:
        workers = chance.sample(lab.workers(), count)
        for number in numbers:
            if any([_send(worker, number) for worker in workers]):
                lab.mark.touch()
            if number != numbers[-1]:
                time.sleep(chance.uniform(0.2, 2))

    return act


def weights(what: str) -> Act:
    def act(lab: Laboratory, chance: random.Random) -> None:
        worker = chance.choice(lab.workers()).handle
        worker.__ray_call__.remote(_at_weight(what, chance.randrange(1, 9), str(lab.mark)))

    return act


def kill_actor(lab: Laboratory, chance: random.Random) -> None:
    [actor] = lab.cast.groups[ACTOR].processes
    os.kill(import_ray().get(actor.identity.remote())[1], signal.SIGKILL)
    lab.mark.touch()


@dataclass(frozen=True)
class Kind:
    """A fault: what is done while the run goes on; whether it is asked to stop later; what is done to its journal before it is resumed."""

    act: Act | None = None
    stops: bool = False
    injury: str = ""


KINDS = {
    "SIGKILL of a rollout worker": Kind(signals(1, signal.SIGKILL)),
    "SIGKILL of both rollout workers": Kind(signals(2, signal.SIGKILL)),
    "SIGKILL of a rollout worker, then SIGTERM": Kind(signals(1, signal.SIGKILL), stops=True),
    "rollout worker stopped for good": Kind(signals(1, signal.SIGSTOP)),
    "rollout worker stopped for good, then SIGTERM": Kind(signals(1, signal.SIGSTOP), stops=True),
    "rollout worker stopped for 0.2 to 2 s": Kind(signals(1, signal.SIGSTOP, signal.SIGCONT)),
    "SIGKILL while weights arrive": Kind(weights("kill")),
    "weights late": Kind(weights("delay")),
    "bit flip of a weight on its way": Kind(weights("corrupt")),
    "SIGKILL of the actor": Kind(kill_actor),
    "SIGTERM": Kind(stops=True),
    **{f"SIGTERM, {how} of a journal file": Kind(None, True, how) for how in ("truncation", "bit flip", "deletion")},
}


class Strike(StopAfter):
    """Acts after a safe point and a delay, in a thread; asks for a stop at another safe point (0: at none)."""

    def __init__(self, act: Callable[[], None], at: int, delay_s: float, stop: int) -> None:
        super().__init__(stop)
        self.act, self.at, self.delay_s = act, at, delay_s
        self.done: Future[None] = Future()

    def _count(self, trainer: Any) -> None:
        super()._count(trainer)
        self.at -= 1
        if self.at == 0:
            threading.Thread(target=self._act).start()

    def _act(self) -> None:
        time.sleep(self.delay_s)
        try:
            self.done.set_result(self.act())
        except BaseException as error:
            self.done.set_exception(error)


def strike(lab: Laboratory, kind: Kind, chance: random.Random, whole: Path) -> tuple[str, str]:
    """One fault. Returns how the struck run ended, and what is wrong with that ("": nothing)."""
    folder = lab.root / "run"
    shutil.rmtree(folder, ignore_errors=True)
    lab.mark.unlink(missing_ok=True)
    config, at = lab.config(folder), chance.randrange(1, SAFE_POINTS - 3)
    act, stop = kind.act or (lambda lab, chance: lab.mark.touch()), chance.randrange(at + 1, SAFE_POINTS)
    struck = Strike(lambda: act(lab, chance), at, chance.uniform(0, 0.3), stop if kind.stops else 0)
    before, damaged = lab.workers(), ""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "Watch", lambda: struck)
        how = _ended(config)
    struck.done.result(timeout=30)
    if not lab.mark.exists():
        lab.mend()
        return "missed", ""
    if how == "went on" and set(before) - set(lab.workers()):
        how = "went on with another worker"
    lab.mend()  # a run that is resumed has processes of its own
    if (how == "message" and kind.act is not kill_actor) or (how == "saved and stopped") != kind.stops:
        return how, "it ended otherwise than it should"
    if how in ("message", "saved and stopped"):
        if kind.injury:
            damaged = damage(folder / "journal", kind.injury, chance)
        resumed = _ended(merge(config, {"ckpt": {"resume": True}}))
        if resumed != "went on":
            return how, f"resumed, it ended otherwise than it should: {resumed}"
    return how, _wrong(folder, whole, damaged)


def _ended(config: Config) -> str:
    try:
        with _limit():
            train(config)
    except Interrupted:
        return "saved and stopped"
    except UserError as error:
        print(error, file=sys.stderr)
        return "message"
    return "went on"


@contextlib.contextmanager
def _limit() -> Iterator[None]:
    def hangs(signum: int, frame: Any) -> None:
        raise RuntimeError(f"a run hung for {LIMIT_S} s")

    kept = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, kept)


def _wrong(folder: Path, whole: Path, damaged: str) -> str:
    if not same(folder, whole):
        return "the weights are others"
    if rows(folder) != rows(whole):
        return "the metrics are others"
    missing = set(range(1, EPISODES + 1)) - set(Journal(folder).steps())
    if missing - {step for step in missing if f"step-{step:06d}" in damaged}:
        return f"steps {missing} are not in the journal"
    try:
        parted = first_difference(folder, whole)
        for step in Journal(folder).steps():
            Journal(folder).samples(step, 0)
    except UserError as error:
        return "" if damaged and damaged in str(error) else f"the journal: {error}"
    # step.json has no checksum of its own: of its digests, the replay says that they differ.
    told = parted.step is None or damaged == f"step-{parted.step:06d}/step.json"
    return "" if told else f"in step {parted.step} of the journal the {parted.what} are others"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds with this in their name")
    given = parser.parse_args()
    kinds = [name for name in KINDS if given.only in name]
    found: dict[str, list[tuple[str, str]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory(prefix="faults-") as name, cluster(), cast_of_all() as cast:
        lab = Laboratory(cast, save_micro_model(Path(name) / "model"), Path(name))
        with contextlib.redirect_stdout(sys.stderr):
            whole = train(lab.config(Path(name) / "whole"))
        assert all(row["grad_norm/actor"] > 0 for row in rows(whole)[1:]), "it must learn, else nothing could differ"
        for number in range(given.count):
            kind, begun, how = kinds[number % len(kinds)], time.monotonic(), "missed"
            chance = random.Random(f"{given.seed} {number}")
            while how == "missed":
                with contextlib.redirect_stdout(sys.stderr):
                    cast.group("rollout")(ROLLOUT[1])
                    how, wrong = strike(lab, KINDS[kind], chance, whole)
                seconds = time.monotonic() - begun
                print(f"{number + 1}/{given.count} {kind}: {how}; {wrong or 'exact'} ({seconds:.1f} s)", flush=True)
            found[kind].append((how, wrong))
    print("\n| fault | faults | struck run | wrong |\n|---|---|---|---|")
    for kind, outcomes in (found | {"**all**": [one for ones in found.values() for one in ones]}).items():
        counts = ", ".join(f"{n} {how}" for how, n in Counter(how for how, _ in outcomes).most_common())
        print(f"| {kind} | {len(outcomes)} | {counts} | {sum(bool(wrong) for _, wrong in outcomes)} |")
    return int(any(wrong for outcomes in found.values() for _, wrong in outcomes))


if __name__ == "__main__":
    sys.exit(main())
