"""A Ray cluster: joining or starting one, what is free in it, and whether its workers run this code."""

import hashlib
import os
import platform
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rlvr
from rlvr.config import RayConfig
from rlvr.errors import UserError

ANSWER_S = 5.0
"""Longest that a cluster's head may take to accept a connection."""


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to.

    Attributes:
        started: whether this process started it, and ends it.
        nodes: machines that are alive.
        total, free: CPUs and GPUs, by Ray's names.
    """

    started: bool
    nodes: int
    total: Mapping[str, float]
    free: Mapping[str, float]

    @property
    def has_gpus(self) -> bool:
        return self.total.get("GPU", 0) > 0

    def close(self) -> None:
        """Leave the cluster, and end it if it was started here."""
        if self.started:
            import_ray().shutdown()


def import_ray() -> Any:
    """The package ray.

    Raises:
        UserError: it is not installed.
    """
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs the package ray: pip install 'rlvr[ray]'") from None
    return ray


def connect(settings: RayConfig, cpus: int) -> Cluster:
    """Join the cluster that the settings name; without one, start one on this machine with room for `cpus` processes.

    A process that is connected already stays so.

    Raises:
        UserError: ray is not installed, or nobody answers under the address.
    """
    ray = import_ray()
    started = False
    if not ray.is_initialized():
        started = True
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if settings.ray_address is None:
            # CPUs are places for processes here: roles take turns, so there may be more of them than cores.
            _start(ray, num_cpus=max(os.cpu_count() or 1, cpus), **quiet)
        else:
            _join(ray, settings.ray_address)
    nodes = sum(node["Alive"] for node in ray.nodes())
    return Cluster(started, nodes, ray.cluster_resources(), ray.available_resources())


def _start(ray: Any, **options: Any) -> None:
    try:
        ray.init(address="local", **options)
    except Exception as error:  # Ray raises no narrower one
        ray.shutdown()  # what has started of it
        raise UserError(
            f"--ray: no cluster could be started on this machine: {' '.join(str(error).split())[:300]} See the logs in "
            "/tmp/ray/session_latest/logs, and that the machine has memory and time to spare"
        ) from error


def _join(ray: Any, address: str) -> None:
    if address != "auto":
        _probe(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"--ray_address {address}: {reason} Leave it out to start a cluster here") from None


def _probe(address: str) -> None:
    """Raise `UserError` unless somebody listens at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if "://" in address or not host or not port.isdigit() or int(port) > 65535:
        raise UserError(
            f"--ray_address {address}: give HOST:PORT of the cluster's head (what `ray start --head` printed, usually port "
            "6379), or auto for the cluster that runs on this machine"
        )
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise UserError(
            f"--ray_address {address}: nobody answers there within {ANSWER_S:g} s ({error.strerror or error}); see that "
            "`ray start --head` runs on that machine and that its port can be reached, or leave the address out to start a "
            "cluster here"
        ) from None


@cache
def code_versions() -> dict[str, str]:
    """What must be the same in all processes of a run: versions, and a digest of this library's own code."""
    digest = hashlib.blake2b(digest_size=6)
    root = Path(rlvr.__file__).parents[1]
    for package in ("rewards", "rlvr"):
        for path in sorted((root / package).rglob("*.py")):
            digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    found = {name: version(name) for name in ("torch", "transformers", "ray")}
    python = ".".join(platform.python_version_tuple()[:2])
    return {"rlvr": f"{rlvr.__version__} ({digest.hexdigest()})", "python": python, **found}


def compare_versions(theirs: Mapping[str, str], where: str) -> None:
    """Raise `UserError` if a worker runs other code than this process."""
    mine = code_versions()
    different = [f"{n}: {mine[n]} here, {theirs.get(n, 'none')} there" for n in mine if mine[n] != theirs.get(n)]
    if different:
        raise UserError(
            f"{where} runs other code than the driver ({'; '.join(different)}): install the same versions on every node of the "
            "cluster"
        )


def work_in(folder: str) -> None:
    """Let relative paths mean here what they mean in the driver, on nodes that have its folder."""
    if Path(folder).is_dir():
        os.chdir(folder)


def end(processes: list[Any]) -> None:
    """End Ray actors at once, those that are dead already too."""
    ray = import_ray()
    for process in processes:
        with suppress(ray.exceptions.RayError):
            ray.kill(process)
