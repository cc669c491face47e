"""Waiting for what Ray actors were asked, and making errors of theirs ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from safetensors import SafetensorError

from rlvr.errors import UserError
from rlvr.ray.cluster import import_ray

MATES_S = 20.0
"""How long to look for a dead process after another of its group failed."""

START_S = 600.0
"""How long a process may take to start and to import what it needs."""

# What callers handle; torch reports a failed write as RuntimeError.
_KNOWN = (UserError, OSError, SafetensorError, RuntimeError)


class ProcessDied(Exception):
    """A process of the run is gone, killed or crashed.

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
        limit_s: how long to wait for each next result; None = for ever.

    Raises:
        ProcessDied: a process is gone.
        UserError, OSError, ...: what a process raised.
        UserError: nothing came within the limit.
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
            raise ProcessDied(who[done], _reason(error)) from None
        except ray.exceptions.RayTaskError as error:
            _look_for_the_dead(ray, pending, who)
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, _KNOWN) else error) from None
    return [results[ref] for ref in refs]


def _look_for_the_dead(ray: Any, pending: list[Any], who: Mapping[Any, str]) -> None:
    """A process that loses its mate fails too, and often first: the dead one is what the user wants to hear of."""
    done, _ = ray.wait(pending, num_returns=len(pending), timeout=MATES_S) if pending else ([], [])
    for ref in done:
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            raise ProcessDied(who[ref], _reason(error)) from None
        except ray.exceptions.RayTaskError:
            continue


def _reason(error: Exception) -> str:
    """Ray's reason, without its list of what might have been the cause of it."""
    text = " ".join(str(error).split("Some common causes")[0].split())
    told = text.rpartition("Worker exit type: ")[2] or text
    return told[:200].rstrip(" .")
