"""`trial`: one act among good samples through the real pool, and what it left behind; `run_with`: one through a short training run."""

import contextlib
import io
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import leftovers
from saved_models import save_micro_model

from rewards import Sample, Score, Tags, UserError, resolve
from rewards.pool import RewardPool

from .acts import MISTAKES, POISONS

PLUGIN = Path(__file__).with_name("acts.py")
PATIENCE_S = 90.0
"""A pool that has not answered after so long hangs. Deadlines, and a fork server that is waited for, sum up to a third of it."""


@dataclass(frozen=True)
class Trial:
    """What came of an act.

    Attributes:
        came: its own outcome.
        others: of the good samples around it, those that failed.
        wrong: what must not be; nothing if all is well.
        took_s: by the clock.
    """

    came: str
    others: int
    wrong: str
    took_s: float


def samples(texts: Sequence[str]) -> list[Sample]:
    return [Sample(text, "42", tags=Tags.default()) for text in texts]


def trial(name: str, timeout_s: float = 1.0) -> Trial:
    """Score eight good samples with the act in their midst, then four more; count processes, threads and descriptors."""
    began, before = time.monotonic(), leftovers.marked()
    held, threads = _descriptors(), threading.active_count()
    function = resolve(f"{PLUGIN}:misbehave")
    limits = {"timeout_s": timeout_s, "memory_limit_bytes": 2**28, "max_failed_share": 1.0, "cache_size": 0}
    wrong, came, others = "", "", 0
    with RewardPool([function], workers=2, **limits) as pool:  # type: ignore[arg-type]
        try:
            (found,) = pool.submit(samples(["good"] * 4 + [name] + ["good"] * 4)).result(PATIENCE_S)
            came, others = _said(found[4]), sum(one.value != 1.0 for one in found[:4] + found[5:])
        except UserError:
            came = "the user's mistake"
        except TimeoutError:
            wrong = "the pool hangs"
        if not wrong:
            wrong, failed = _goes_on(pool, name in POISONS)
            others += failed
    wrong = wrong or _expected(name, came, others)
    if left := leftovers.processes(before):
        wrong = wrong or f"left behind: {left}"
    if threading.active_count() > threads:
        wrong = wrong or "a thread is left"
    if _descriptors() > held:
        wrong = wrong or f"{_descriptors() - held} descriptors are left"
    return Trial(came, others, wrong, time.monotonic() - began)


def _goes_on(pool: RewardPool, poisoned: bool) -> tuple[str, int]:
    """(what is wrong with the next batch, how many of it failed)."""
    try:
        (after,) = pool.submit(samples(["good"] * 4)).result(PATIENCE_S)
    except TimeoutError:
        return "the pool hangs afterwards", 0
    except UserError as error:
        return ("" if poisoned else f"the pool refuses the next batch: {error}"), 4
    return "", sum(one.value != 1.0 for one in after)


def _expected(name: str, came: str, others: int) -> str:
    if others and name not in POISONS:
        return f"{others} good samples failed"
    if (came == "the user's mistake") != (name in MISTAKES):
        return f"it came out as {came!r}"
    return ""


def _said(score: Score) -> str:
    if score.outcome is not None and score.value is None:
        return score.outcome.status
    return f"scored {score.value:g}" if score.value is not None else "no score"


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


IN_RUNS = (
    "os exit", "kill itself", "sleep", "a daemon", "kill its parent", "ever more memory", "nan", "close every descriptor",
)  # fmt: skip
"""Acts that go through a whole run, too."""


def run_with(name: str, folder: Path) -> Trial:
    """Train for two episodes with a function that does this on a third of the responses."""
    from rlvr.cli.main import main

    began, before = time.monotonic(), leftovers.marked()
    model = save_micro_model(folder / "model")
    words = [
        "train", "--pretrain", model, "--conversation_template_config", "tiny", "--reward_functions", f"{PLUGIN}:now_and_then",
        "--num_episodes", "2", "--num_collect_steps", "1", "--num_update_steps", "1", "--experience_batch_size", "8", "--train_batch_size",
        "4", "--max_new_tokens", "6", "--mixed_precision", "fp32", "--reward_timeout_s", "1", "--reward_memory_mb", "256",
        "--eval_samples", "2", "--save_path", str(folder / "run"),
    ]  # fmt: skip
    os.environ["MISBEHAVE"] = name
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(words)
    finally:
        del os.environ["MISBEHAVE"]
    wrong = ""
    if status == 2 and "now_and_then" not in err.getvalue():
        wrong = f"it ends without naming the function: {err.getvalue()[-300:]}"
    elif status == 0 and not (folder / "run" / "actor" / "modeling").is_dir():
        wrong = "it ends without a model"
    elif status not in (0, 2):
        wrong = f"exit status {status}"
    if left := leftovers.processes(before):
        wrong = wrong or f"left behind: {left}"
    return Trial("it trains" if status == 0 else "it ends and names the function", 0, wrong, time.monotonic() - began)
