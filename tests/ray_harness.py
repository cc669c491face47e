"""Runs on a Ray cluster of this machine: small settings, processes that take up role after role (starting them is what costs), and
what runs leave behind, to be compared."""

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import leftovers
import pytest
import torch
from safetensors.torch import load_file
from trainer_harness import StopAfter

import rlvr.ray.train as on_ray
from rlvr.api import train
from rlvr.config import Config, base_config, overlay
from rlvr.ray.cluster import Cluster, connect, import_ray
from rlvr.ray.groups import Size
from rlvr.ray.rewards import RewardWorkers
from rlvr.run import assembly
from rlvr.trainer.base import Interrupted

SIZES = {
    "rollout": {"experience_batch_size": 16, "num_generations": 2, "max_new_tokens": 12, "max_length": 128},
    "train": {
        "num_episodes": 2, "num_collect_steps": 1, "num_update_steps": 1, "train_batch_size": 8, "lr": 1e-3,
        "num_threads": 1,
    },
    "parallel": {"mixed_precision": "fp32"},
    "reward": {"reward_functions": ["gsm8k_reward_fn"]},
    "data": {"max_samples": 40},
    "log": {"progress": False},
}  # fmt: skip


class Cast:
    """Processes of the whole module, by role and size; runs borrow them."""

    def __init__(self) -> None:
        self.groups: dict[tuple[str, Size], Any] = {}
        self.workers: dict[str, RewardWorkers] = {}
        self.end = {name: kind.close for name, kind in on_ray._KINDS.items()}

    def group(self, role: str) -> Callable[[Size], Any]:
        kind = KINDS[role]

        def borrow(size: Size) -> Any:
            if (role, size) not in self.groups:
                group = self.groups[role, size] = kind(size)
                group.close = lambda: None
            return self.groups[role, size]

        return borrow

    def pool(self, config: Config, least: int, most: int) -> RewardWorkers:
        key = str(config.reward)
        if key not in self.workers:
            workers = self.workers[key] = RewardWorkers(config, least, most)
            workers.check_versions()
            workers.check_versions = workers.close = lambda: None  # type: ignore[method-assign]
        return self.workers[key]


KINDS = dict(on_ray._KINDS)


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A cluster whose files lie in a folder with a short name (sockets must have one) that is gone afterwards."""
    ray, before = import_ray(), leftovers.marked()
    folder = tempfile.mkdtemp(prefix="ray")
    auth = os.environ.get("RAY_AUTH_MODE")
    os.environ["RAY_AUTH_MODE"] = "disabled"  # else it leaves a token in the home folder
    try:
        options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
        for tries_left in (2, 1, 0):  # Ray gives its own processes 30 s to start, whatever else the machine does
            try:
                ray.init(address="local", num_cpus=24, _temp_dir=folder, object_store_memory=100 * 2**20, **options)
                break
            except Exception as error:
                if "during startup" not in str(error) or not tries_left:
                    raise
                ray.shutdown()
        yield connect(base_config().ray, 1)
        ray.shutdown()
        # A process that was just starting sees only after its imports that nobody needs it.
        deadline = time.monotonic() + 200
        while left := [process for process in leftovers.marked() - before if not leftovers.lasting(process)]:
            assert time.monotonic() < deadline, left
            time.sleep(0.1)
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop("RAY_AUTH_MODE") if auth is None else os.environ.update(RAY_AUTH_MODE=auth)


@contextmanager
def cast_of_all() -> Iterator[Cast]:
    """Processes that take up role after role, for all runs in the block."""
    cast = Cast()
    with pytest.MonkeyPatch.context() as patch:
        for role in on_ray._KINDS:
            patch.setitem(on_ray._KINDS, role, cast.group(role))
        patch.setattr(on_ray, "RewardWorkers", cast.pool)
        yield cast


def settings(pretrain: str, folder: Path, remote: bool, **changes: dict[str, Any]) -> Config:
    named = {"model": {"pretrain": pretrain}, "ckpt": {"save_path": str(folder)}, "ray": {"ray": remote}}
    sampled = {"eval_samples": 8, "eval_generations": 2, "eval_temperature": 1.0}
    held_out = {"eval": sampled} if "prompt_dataset" not in changes.get("data", {}) else {}
    has_critic = not ("estimator" in changes.get("algo", {}) or "share_trunk" in changes.get("model", {}))
    critic = {"train": {"critic_lr": 1e-3}} if has_critic else {}
    return base_config(overlay(SIZES, named, held_out, critic, changes))


def rows(folder: Path) -> list[dict[str, float]]:
    """metrics.jsonl without what depends on the clock."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith(("time/", "memory/"))} for row in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("*/modeling/*.safetensors"))
    return {f"{f.parent.parent.name}/{f.name}/{n}": t for f in files for n, t in load_file(f).items()}


def same(one: Path, other: Path) -> bool:
    a, b = weights(one), weights(other)
    return bool(a) and a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def stopped(config: Config, safe_points: int) -> Path:
    """Run until a signal comes after so many safe points; returns the run's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "Watch", lambda: StopAfter(safe_points))
        with pytest.raises(Interrupted):
            train(config)
    return Path(config.ckpt.save_path)


def process_of(handle: Any, method: str) -> int:
    import ray

    found = ray.get(getattr(handle, method).remote())
    return found[1] if isinstance(found, tuple) else found


class KillAfterCollecting(StopAfter):
    """Kills a process after the first collect step."""

    def __init__(self, pid: int) -> None:
        self.pid: int | None = pid

    def on_make_experience_end(self, trainer: Any, collected: Any) -> None:
        if self.pid is not None and trainer.progress.episode == 0:
            os.kill(self.pid, signal.SIGKILL)
        self.pid = None

    def on_learn_batch_end(self, trainer: Any, batch: Any) -> None: ...
