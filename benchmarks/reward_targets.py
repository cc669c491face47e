"""What the grader of `rewards` must reach on labelled answers; held by benchmarks/rewards.py and tests/rewards/test_labelled.py."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass
class Result:
    """One grader on one set."""

    dataset: str
    grader: str
    rows: int
    accuracy: float
    """per cent"""
    false_positives: int
    false_negatives: int
    negatives: int
    """rows whose label is "wrong" """
    items_per_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    ratio: float = 0.0
    """our items/s to this grader's"""


@dataclass
class Target:
    """What must hold of our grader on one set; None = nothing asked."""

    accuracy: float | None = None
    false_positives: tuple[int, int] | None = None
    """at most so many in so many rows: fewer rows, fewer mistakes"""
    false_negatives: tuple[int, int] | None = None
    false_positive_rate: float | None = None
    """per cent of all rows"""
    ratio: float | None = None
    """our items/s to math-verify's"""
    p99_ms: float = 10.0


_GSM8K = Target(accuracy=99.95, false_positives=(0, 1), ratio=15)
TARGETS = {
    "gsm8k_mr_human": _GSM8K,
    "gsm8k_openai_model_solutions": _GSM8K,
    "gsm8k_rho_outputs": _GSM8K,
    "gsm8k_routellm_outputs": _GSM8K,
    "math_rho_outputs": Target(accuracy=99.5, false_positives=(5, 1935), ratio=20),
    "math_qwen_cot100": Target(accuracy=100),
    "mathverify_tests": Target(accuracy=98, p99_ms=50),
    "hardverify_math": Target(accuracy=90, false_positive_rate=1, ratio=20),
    "hack_probes": Target(false_positives=(0, 1), false_negatives=(2, 57)),
}
GSM8K_RATIO = 30.0
"""Our items/s to math-verify's over all of its sets; each set for itself is asked for half."""
MAX_MS = 1000.0
"""On every set."""

Verdict = tuple[str, str, str, str, bool]
"""Set, what is asked, what was asked for, what was measured, whether it holds."""


def check(ours: Result, peer: Result | None) -> list[Verdict]:
    """Every target of one set."""
    target = TARGETS.get(ours.dataset, Target())
    found = check_verdicts(ours.dataset, ours.rows, ours.false_positives, ours.false_negatives)
    if target.ratio is not None and peer is not None:
        ratio = ours.items_per_s / peer.items_per_s
        found.append(_at_least(ours.dataset, "times math-verify's items/s", ratio, target.ratio))
    found.append(_at_most(ours.dataset, "p99 ms", ours.p99_ms, target.p99_ms))
    found.append(_at_most(ours.dataset, "max ms", ours.max_ms, MAX_MS))
    return found


def check_together(ours: Sequence[Result], peer: Sequence[Result]) -> list[Verdict]:
    """The speed over all rows of the sets of GSM8K, if both graders have seen them all."""
    seconds = [
        sum(r.rows / r.items_per_s for r in results if TARGETS.get(r.dataset) is _GSM8K) for results in (ours, peer)
    ]
    seen = {r.dataset for r in ours} & {r.dataset for r in peer}
    if not {name for name, target in TARGETS.items() if target is _GSM8K} <= seen:
        return []
    return [_at_least("all of GSM8K", "times math-verify's items/s", seconds[1] / seconds[0], GSM8K_RATIO)]


def check_verdicts(dataset: str, rows: int, false_positives: int, false_negatives: int) -> list[Verdict]:
    """The targets that time has no part in."""
    target, found = TARGETS.get(dataset, Target()), []
    if target.accuracy is not None:
        accuracy = 100 * (1 - (false_positives + false_negatives) / rows)
        found.append(_at_least(dataset, "accuracy %", accuracy, target.accuracy))
    if target.false_positives is not None:
        found.append(_at_most(dataset, "false positives", false_positives, _share(target.false_positives, rows)))
    if target.false_negatives is not None:
        found.append(_at_most(dataset, "false negatives", false_negatives, _share(target.false_negatives, rows)))
    if target.false_positive_rate is not None:
        rate = 100 * false_positives / rows
        found.append(_at_most(dataset, "false positives %", rate, target.false_positive_rate))
    return found


def _share(limit: tuple[int, int], rows: int) -> int:
    allowed, of_rows = limit
    return allowed * rows // of_rows


def _at_least(dataset: str, what: str, value: float, limit: float) -> Verdict:
    return dataset, what, f">= {limit:g}", f"{value:.2f}", value >= limit


def _at_most(dataset: str, what: str, value: float, limit: float) -> Verdict:
    return dataset, what, f"<= {limit:g}", f"{value:.2f}", value <= limit
