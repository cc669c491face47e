"""The runs that faults are injected into, and how their results are compared."""

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .forking import Ended, Hook, Launch

REWARD = '''"""Pays for the letter e; breaks when a file tells it to."""

import os
import time


def letters(response: str) -> float:
    how = open(FLAG).read() if os.path.exists(FLAG) else ""
    if how == "raises":
        raise RuntimeError("broken on purpose")
    if how == "hangs":
        time.sleep(1000)
    if how == "exits":
        os._exit(3)
    if how == "allocates":
        hold = [bytearray(2**24) for _ in range(10**6)]
    return response.count("e") / max(1, len(response))


class Again:
    """A second turn, and a third, each after a word of the environment's own."""

    def reset(self, problem):
        self.turns = 0

    def step(self, text):
        self.turns += 1
        return f"again {self.turns}", self.turns == 3, {"score": float(len(text))}
'''
MARK = "FAULT_MARK"  # variable with the path of the file that says that a fault was done
COMMON = "--num_threads 1 --mixed_precision fp32 --keep_checkpoints 2 --no-progress"
SORTS = {
    "fsdp": "--plugin fsdp",
    "gemini": "--plugin gemini --mixed_precision bf16",
    "3d": "--plugin 3d --tp 2",
    "Ray": "--ray --max_reward_workers 1",
    "turns": "--environment {reward}:Again --max_turns 3 --max_new_tokens 48 --max_length 160",
}
"""Flags of the sorts of runs beyond plain ones."""
ON_RAY = {
    "RAY_AUTH_MODE": "disabled",  # else it leaves a token in the home folder
    "SPT_NOENV": "1",  # else the names that it gives its processes hide whose they are
}
PPO = (
    "--num_episodes 4 --experience_batch_size 64 --train_batch_size 32 --num_update_steps 1 --num_collect_steps 1 "
    "--max_new_tokens 8 --max_length 96 --max_samples 64 --eval_samples 16 --eval_interval 2 --save_interval 1 "
    "--kl_coef 0.01 --lr 1e-3 --critic_lr 1e-3 --num_sample_generations 0 --reward_workers 1 --reward_timeout_s 1.5 "
    "--reward_memory_mb 64 --max_reward_failures 0.02 --journal 9"
)
SUPERVISED = (
    "--max_steps 12 --max_samples 64 --train_batch_size 8 --eval_interval 6 --save_interval 3 --log_interval 2 "
    "--max_length 96 --lr 1e-3"
)


@dataclass(frozen=True)
class Visit:
    """One time that a process was in a phase.

    Attributes:
        number: how often it had entered that phase by then, from 1.
        seconds: until it entered the next.
    """

    phase: str
    number: int
    seconds: float


@dataclass(frozen=True)
class Result:
    """What a run leaves: a digest of each role's weights, and the rows of metrics without what depends on the clock."""

    weights: dict[str, str]
    rows: list[str]

    @classmethod
    def of(cls, folder: Path) -> "Result":
        files = sorted(folder.glob("*/modeling/*.safetensors"))
        weights = {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
        path = folder / "metrics.jsonl"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        plain = [{k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))} for row in rows]
        return cls(weights, [json.dumps(row, sort_keys=True) for row in plain])


@dataclass
class Lab:
    """One kind of run: how it is started, what it gives when left alone, and when it is in which phase.

    Attributes:
        name: `ppo`, `sft`, `rm`.
        processes: how many.
        sort: of `SORTS`; "" for plain ones.
        root: folder for everything.
        namespaces: network namespaces of the processes, where they are not all in this one; with the address of the first
            and the network card of each.
        timeout_s: how long a process waits for the others.
    """

    name: str
    processes: int
    root: Path
    model: str
    namespaces: Sequence[str] = ()
    address: str = "127.0.0.1"
    cards: Sequence[str] = ()
    timeout_s: float = 30.0
    sort: str = ""

    @property
    def title(self) -> str:
        """For people."""
        name = "two machines" if self.namespaces else self.name
        return name + (", 2 processes" if self.processes > 1 else "") + (f", {self.sort}" if self.sort else "")

    @property
    def on_ray(self) -> bool:
        return self.sort == "Ray"

    @property
    def flag(self) -> Path:
        """The file that breaks the reward function."""
        return self.root / "break"

    @property
    def mark(self) -> Path:
        """The file that a fault makes when it is done."""
        return self.root / "struck"

    def run(self, folder: Path, hook: Hook = lambda rank: None, limit_s: float = 90.0) -> list[Ended]:
        """Run, or go on with what `folder` holds."""
        temporary = self.root / "tmp"
        temporary.mkdir(exist_ok=True)
        launch = Launch(
            [self.command(folder)] * self.processes, hook, self.namespaces, self.address,
            {"TMPDIR": str(temporary), MARK: str(self.mark)} | (ON_RAY if self.on_ray else {}), self.cards,
            90.0 if self.on_ray else 3.0,  # without a head, Ray's processes look for it for a minute
        )  # fmt: skip
        ended = launch.run(limit_s * (6 if self.on_ray else 1))
        if self.on_ray:  # Ray keeps its logs
            shutil.rmtree(temporary / "ray", ignore_errors=True)
        for left in temporary.iterdir():
            ended[0].err += f"\nLEFT BEHIND: {left.name}"
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        return ended

    def command(self, folder: Path) -> list[str]:
        common = f"{COMMON} --pretrain {self.model} --save_path {folder} --resume --dist_timeout {self.timeout_s}"
        reward = self._reward()
        special = SORTS[self.sort].format(reward=reward) if self.sort else ""
        if self.name == "ppo":
            functions = ["--reward_functions", f"{reward}:letters"]
            return ["train", *common.split(), *PPO.split(), *functions, *special.split()]
        command = {"sft": "sft", "rm": "reward-model"}[self.name]
        return [command, *common.split(), *SUPERVISED.split(), *special.split()]

    def _reward(self) -> Path:
        path = self.root / "reward.py"
        path.write_text(REWARD.replace("FLAG", repr(str(self.flag))))
        return path

    @property
    def whole(self) -> Path:
        """The folder of the run that nothing happens to."""
        return self.root / "whole"

    @cached_property
    def expected(self) -> Result:
        """Of the run that nothing happens to."""
        return self._undisturbed[0]

    @cached_property
    def visits(self) -> list[list[Visit]]:
        """For each rank, the phases of the run that nothing happens to."""
        return self._undisturbed[1]

    @cached_property
    def _undisturbed(self) -> tuple[Result, list[list[Visit]]]:
        folder = self.whole
        shutil.rmtree(folder, ignore_errors=True)
        ended = self.run(folder, self._record)
        assert all(e.status == 0 for e in ended), "\n".join(e.out + e.err for e in ended)
        visits = [_visits(self.root / f"phases-{rank}") for rank in range(self.processes)]
        result = Result.of(folder)
        assert result.weights and result.rows
        return result, visits

    def _record(self, rank: int) -> None:
        """In a process of the undisturbed run: write down when it enters which phase."""
        import time

        from rlvr.boost.health import StatusReporter

        plain, file = StatusReporter.enter, (self.root / f"phases-{rank}").open("w", buffering=1)

        def enter(reporter: StatusReporter, phase: str) -> None:
            file.write(f"{phase} {time.monotonic()}\n")
            plain(reporter, phase)

        StatusReporter.enter = enter  # type: ignore[method-assign]


def _visits(path: Path) -> list[Visit]:
    entries = [line.split() for line in path.read_text().splitlines()]
    ends = [float(at) for _, at in entries[1:]] + [float(entries[-1][1])]
    seen: dict[str, int] = {}
    visits = []
    for (phase, at), end in zip(entries, ends, strict=True):
        seen[phase] = seen.get(phase, 0) + 1
        visits.append(Visit(phase, seen[phase], end - float(at)))
    return visits


def may_mount() -> bool:
    """Whether this process may mount a file system."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return not subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode


def may_join_namespaces() -> bool:
    """Whether this process may make network namespaces, join them by a cable, and enter them: tried out."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    try:
        Wire().close()
    except OSError:
        return False
    return True


class Disk:
    """A small file system of its own at `path`, where that may be mounted."""

    def __init__(self, path: Path, megabytes: int = 16) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "faults", str(path)], check=True)

    def close(self) -> None:
        subprocess.run(["umount", str(self.path)], check=True)


class Wire:
    """Two network namespaces joined by a pair of virtual cards.

    Raises:
        OSError: they may not be made here.
    """

    ADDRESSES = ("10.77.0.1", "10.77.0.2")

    def __init__(self) -> None:
        tag = f"f{os.getpid() % 10**6}"
        self.names = (f"{tag}a", f"{tag}b")
        self.cards = (f"{tag}x", f"{tag}y")
        try:
            for name in self.names:
                _ip("netns", "add", name)
            _ip("link", "add", self.cards[0], "type", "veth", "peer", "name", self.cards[1])
            for name, card, address in zip(self.names, self.cards, self.ADDRESSES, strict=True):
                _ip("link", "set", card, "netns", name)
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", card)
                _ip("-n", name, "link", "set", "lo", "up")
            self.mend()
        except OSError:
            self.close()
            raise

    def cut(self) -> None:
        """Nothing passes any more; nobody is told."""
        for name, card in zip(self.names, self.cards, strict=True):
            _ip("-n", name, "link", "set", card, "down")

    def mend(self) -> None:
        for name, card in zip(self.names, self.cards, strict=True):
            _ip("-n", name, "link", "set", card, "up")

    def close(self) -> None:
        for name in self.names:
            if Path(f"/run/netns/{name}").exists():
                _ip("netns", "del", name)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr}")
