"""From graded responses to figures: accuracy, pass@k, maj@k, length, verdicts; for `rlvr eval` and as metrics of training.

Everything is made of the lines that an evaluation keeps on disk (`GradedResponse.figures`), so that a resumed evaluation, or one
that is looked at later, gives the same figures.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, get_args

from rewards import equivalent
from rewards.outcome import Status
from rlvr.evaluation.records import Line
from rlvr.evaluation.statistics import majority_at_k, mean_interval, pass_at_k

PLAYED = ("turns", "environment")
"""Figures of an episode with an environment: the policy's turns, and what the environment paid."""


def summarise(lines: Sequence[Line]) -> dict[str, Any]:
    """All figures of some responses, which hold equally many samples of each problem.

    Returns:
        `accuracy` (mean share of right answers) with `accuracy_95`, `accuracy_anyway` (with those right but for the
        answer tags, the figure for a model that was never asked for them), `pass@k` and `maj@k` for k = 2, 4, ... and all
        samples, `format`, `truncated`, `length_tokens`, `statuses`, `rewards`; with an environment the means of `turns` and of
        `environment`, its scores.

    Raises:
        ValueError: there are none.
    """
    problems = by_problem(lines)
    shares = [fmean(line["correct"] for line in samples) for samples in problems.values()]
    found: dict[str, Any] = {
        "problems": len(problems),
        "samples": len(next(iter(problems.values()))),
        "accuracy": fmean(shares),
        "accuracy_95": list(mean_interval(shares)),
        "accuracy_anyway": fmean(line["correct_anyway"] for line in lines),
    }
    if found["samples"] > 1:
        voted = [(_votes(samples), [bool(line["correct"]) for line in samples]) for samples in problems.values()]
        for k in ks_of(found["samples"])[1:]:
            found[f"pass@{k}"] = fmean(pass_at_k(len(right), sum(right), k) for _, right in voted)
            found[f"maj@{k}"] = fmean(majority_at_k(votes, right, k) for votes, right in voted)
    found |= {
        "format": fmean(line["format"] for line in lines),
        "truncated": fmean(not line["finished"] for line in lines),
        "length_tokens": fmean(line["tokens"] for line in lines),
        "statuses": dict(Counter(line["status"] for line in lines).most_common()),
        "rewards": _mean_scores(lines),
    }
    # Where an environment has played.
    return found | {name: fmean(line[name] for line in lines) for name in PLAYED if name in lines[0]}


def summarise_each(lines: Iterable[Line]) -> dict[str, dict[str, Any]]:
    """`summarise` of each data set by itself, in their order."""
    parts: dict[str, list[Line]] = {}
    for line in lines:
        parts.setdefault(line["dataset"], []).append(line)
    return {name: summarise(part) for name, part in parts.items()}


def as_metrics(lines: Sequence[Line]) -> dict[str, float]:
    """The figures as metrics: `eval/accuracy` and so on over all problems, and, where there are several data sets, the same
    of each as `eval/NAME/accuracy`.

    Returns:
        `problems`, `accuracy` with `accuracy_low` and `accuracy_high` (the ends of its 95 % interval), `accuracy_anyway`, `pass_at_K`
        and `maj_at_K`, `format`, `truncated`, `length_tokens` (and `turns`, `environment`), and the number of responses with each verdict, `num_wrong` and so
        on; shares in [0, 1].
    """
    parts = summarise_each(lines)
    found = _as_metrics("eval", summarise(lines))
    if len(parts) > 1:
        for name, summary in parts.items():
            found |= _as_metrics(f"eval/{name}", summary)
    return found


def _as_metrics(prefix: str, summary: Mapping[str, Any]) -> dict[str, float]:
    low, high = summary["accuracy_95"]
    found = {
        name: summary[name]
        for name in ("problems", "accuracy", "accuracy_anyway", "format", "truncated", "length_tokens", *PLAYED)
        if name in summary
    }
    found |= {"accuracy_low": low, "accuracy_high": high}
    # pass_at_4 rather than pass@4: not every tracker takes an @ in a name.
    found |= {name.replace("@", "_at_"): value for name, value in summary.items() if "@" in name}
    found |= {f"num_{status}": summary["statuses"].get(status, 0) for status in get_args(Status)}
    return {f"{prefix}/{name}": float(value) for name, value in found.items()}


def by_problem(lines: Iterable[Line]) -> dict[tuple[str, str], list[Line]]:
    """The samples of each problem, under its data set and id."""
    problems: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        problems.setdefault((line["dataset"], line["problem"]), []).append(line)
    return problems


def ks_of(samples: int) -> list[int]:
    """The k of pass@k and maj@k: 1, 2, 4, ... and all samples."""
    powers = [2**i for i in range(samples.bit_length()) if 2**i < samples]
    return [*powers, samples]


def _votes(samples: Sequence[Line]) -> list[int | None]:
    """Votes for `majority_at_k`: a number for each answer, the same for equivalent ones. All right answers are equivalent."""
    known: list[str] = []
    votes: list[int | None] = []
    for line in samples:
        answer = line["answer"]
        if line["correct"]:
            votes.append(0)
        elif answer is None or not str(answer).strip():
            votes.append(None)
        else:
            same = next((i for i, other in enumerate(known) if answer == other or equivalent(answer, other)[0]), None)
            if same is None:
                known.append(answer)
                same = len(known) - 1
            votes.append(same + 1)
    return votes


def _mean_scores(lines: Sequence[Line]) -> dict[str, float | None]:
    """Mean score of each reward function over the responses that it applies to."""
    means: dict[str, float | None] = {}
    for name in lines[0].get("scores", {}):
        values = [line["scores"][name] for line in lines if line["scores"][name] is not None]
        means[name] = fmean(values) if values else None
    return means
