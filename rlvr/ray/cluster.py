"""A Ray cluster: joining or starting one, its resources, the versions of its workers, and waiting for calls to actors.

The only file that knows how Ray reports errors: `collect` turns them into those of a run without Ray.
"""

import hashlib
import os
import platform
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

import rlvr
from rlvr.config import RayConfig
from rlvr.errors import UserError

ANSWER_S = 5.0
"""Longest that a cluster's head may take to accept a connection."""
MATES_S = 20.0
"""How long to look for a dead process after another of its group failed."""
START_S = 600.0
"""How long a process may take to start and to import what it needs."""

# Errors that pass from an actor to the driver's caller as they are; torch reports a failed write as RuntimeError.
_KNOWN = (UserError, OSError, SafetensorError, RuntimeError)


@dataclass(frozen=True)
class Cluster:
    """A cluster that this process is connected to.

    Attributes:
        started: true if this process started the cluster, and will end it.
        nodes: number of machines that are alive.
        total, free: CPUs and GPUs, by Ray's names for them.
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
    # A call after the end, of a thread that still waits for a worker, would else start a cluster of its own.
    os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs the package ray: pip install 'rlvr[ray]'") from None
    return ray


def connect(settings: RayConfig, cpus: int) -> Cluster:
    """Join the cluster that the settings name; if they name none, start one on this machine with room for `cpus` processes.

    A process that is connected already stays with its cluster.

    Raises:
        UserError: ray is not installed, nobody answers at the address, or no cluster could be started.
    """
    ray = import_ray()
    started = False
    if not ray.is_initialized():
        started = True
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": False}
        if settings.ray_address is None:
            # Ray's CPUs are only a count of places for processes. Roles take turns, so there may be more places than cores.
            _start(ray, num_cpus=max(os.cpu_count() or 1, cpus), **quiet)
        else:
            _join(ray, settings.ray_address)
    nodes = sum(node["Alive"] for node in ray.nodes())
    return Cluster(started, nodes, ray.cluster_resources(), ray.available_resources())


def _start(ray: Any, **options: Any) -> None:
    try:
        ray.init(address="local", **options)
    except Exception as error:  # Ray raises no narrower one
        ray.shutdown()  # the parts of it that did start
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
    """Versions that must be the same in all processes of a run, with a digest of this library's own code."""
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
    """Change to the driver's working folder, so that relative paths mean the same here; a node without the folder stays where it is."""
    if Path(folder).is_dir():
        os.chdir(folder)


def end(processes: list[Any]) -> None:
    """End Ray actors at once; those that are dead already are no error."""
    ray = import_ray()
    for process in processes:
        with suppress(ray.exceptions.RayError):
            ray.kill(process)


def kill_here(identity: Any) -> None:
    """End a process that may not listen any more, if it is on this machine. (Ray ends it too, but only after seconds, and not at all if
    its cluster is ended meanwhile.)

    Args:
        identity: reference to the node's address and the process's id.
    """
    ray = import_ray()
    known, _ = ray.wait([identity], timeout=0)
    with suppress(ray.exceptions.RayError, ProcessLookupError):
        if known and (found := ray.get(identity))[0] == ray.util.get_node_ip_address():
            os.kill(found[1], signal.SIGKILL)


# Waiting for calls to actors.


class ProcessDied(Exception):
    """A process of the run was killed or has crashed.

    Attributes:
        who: the role and the rank.
    """

    def __init__(self, who: str, reason: str) -> None:
        super().__init__(f"{who} died ({reason})")
        self.who = who


def collect(refs: Sequence[Any], names: Sequence[str], limit_s: float | None = None) -> list[Any]:
    """The results of calls, in order; the first that fails ends the wait.

    Args:
        refs: what the calls returned.
        names: of the process of each, for messages.
        limit_s: longest wait for the next result; None = no limit.

    Raises:
        ProcessDied: a process was killed or has crashed.
        UserError, OSError, ...: as a process raised it.
        UserError: no result came within the limit.
    """
    ray = import_ray()
    who, results, pending = dict(zip(refs, names, strict=True)), {}, list(refs)
    while pending:
        ready, pending = ray.wait(pending, num_returns=1, timeout=limit_s)
        if not ready:
            late = ", ".join(dict.fromkeys(who[ref] for ref in pending))
            raise UserError(
                f"{late} did not start within {limit_s:.0f} s: see worker-*.err and raylet.err in the logs of Ray's session "
                "(by default /tmp/ray/session_latest/logs)"
            )
        done = ready[0]
        try:
            results[done] = ray.get(done)
        except ray.exceptions.RayActorError as error:
            raise ProcessDied(who[done], reason_of(error)) from None
        except ray.exceptions.RayTaskError as error:
            _look_for_the_dead(ray, pending, who)
            raise cause_of(error) from None
    return [results[ref] for ref in refs]


def _look_for_the_dead(ray: Any, pending: list[Any], who: Mapping[Any, str]) -> None:
    """Raise `ProcessDied` if one of the other calls failed because its process died.

    A process that loses another of its group fails too, and often reports first; the user wants to hear of the dead one.
    """
    done, _ = ray.wait(pending, num_returns=len(pending), timeout=MATES_S) if pending else ([], [])
    for ref in done:
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            raise ProcessDied(who[ref], reason_of(error)) from None
        except ray.exceptions.RayTaskError:
            continue


def cause_of(error: Exception) -> Exception:
    """What an actor raised, where it is one of the errors that are told as they are; else Ray's report of it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, _KNOWN) else error


def reason_of(error: BaseException) -> str:
    """Ray's reason for a process's end in a line, without its list of possible causes."""
    text = " ".join(str(error).split("Some common causes")[0].split())
    told = text.rpartition("Worker exit type: ")[2] or text
    return told[:200].rstrip(" .")
