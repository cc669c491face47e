"""The report's charts: which curves they show (`TOPICS`), in which colours (`COLOURS`), and how they are drawn.

plotly draws them in the browser; here is only made what it reads. A chart without data in any run is left out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.report.runs import Run

# Okabe and Ito's colours, which people tell apart whatever their colour vision; yellow is left out on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#999999")
DASHES = ("solid", "dot", "dash", "dashdot", "longdash")
BAND_OPACITY = 0.18
MAX_BANDS = 3
"""Most curves of a chart that have their intervals drawn; of more, nothing could be told apart."""


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: what it shows.
        text: how to read it, in a sentence.
        metrics: curves, by name; a * stands for any characters but /.
        percent: values are shares.
        gib: values are bytes, shown in GiB.
        log: logarithmic axis.
        stacked: as areas on top of each other, one run at a time.
        alone: only where the report is on one run; several would have too many curves.
        without: end of names that are left out.
    """

    title: str
    text: str
    metrics: tuple[str, ...]
    percent: bool = False
    gib: bool = False
    log: bool = False
    stacked: bool = False
    alone: bool = False
    without: str | None = None

    def found_in(self, run: Run) -> list[str]:
        """Its metrics that the run has."""
        found: list[str] = []
        for name in self.metrics:
            same = [m for m in matching(name, run.metrics) if not (self.without and m.endswith(self.without))]
            # The panel's first metric is drawn even if it is 0 throughout, the others are not.
            found += [m for m in same if (any if found else bool)(run.series(m)[1])]
        return found


def matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The names that a pattern stands for, pass@2 before pass@16."""
    known = re.compile("[^/]*".join(map(re.escape, pattern.split("*"))))
    return sorted(filter(known.fullmatch, names), key=_natural_order)


def _natural_order(name: str) -> list[tuple[str, int]]:
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D+)(\d*)", name)]


TOPICS: dict[str, tuple[Panel, ...]] = {
    "Learning": (
        Panel("Held-out accuracy", "Right answers to problems that were not trained on; the band is the 95 % interval.", ("eval/accuracy",), percent=True),
        Panel("Held-out accuracy by data set", "The same of each data set.", ("eval/*/accuracy",), percent=True),
        Panel("pass@k", "Chance that one of k answers to a held-out problem is right.", ("eval/pass_at_*",), percent=True),
        Panel("maj@k", "Chance that the commonest of k answers to a held-out problem is right.", ("eval/maj_at_*",), percent=True),
        Panel("pass@k by data set", "The same of each data set.", ("eval/*/pass_at_*",), percent=True, alone=True),
        Panel("maj@k by data set", "The same of each data set.", ("eval/*/maj_at_*",), percent=True, alone=True),
        Panel("Right answers in training", "Share of sampled responses that the grader accepts.", ("outcome/correct",), percent=True),
        Panel("Reward", "Mean score of a response, before the divergence is taken off.", ("objective/scores",)),
        Panel("Components", "Each reward function's own mean.", ("reward/*",)),
        Panel("Parts of components", "Means of what a reward function returns by name.", ("reward/*/*",), without="/failed"),
        Panel("Loss", "Supervised runs: the mean loss of a step; held out where there is such data.", ("train/loss", "eval/loss")),
        Panel("Pairs ranked rightly", "Reward models: share of pairs whose better response scores higher.", ("train/accuracy",), percent=True),
    ),
    "Responses": (
        Panel("Length", "Mean tokens of a response.", ("response/length_tokens", "eval/length_tokens")),
        Panel("Cut off", "Share of responses that hit the length limit.", ("response/truncated", "eval/truncated"), percent=True),
        Panel("In format", "Held-out responses with all tags in their places.", ("eval/format",), percent=True),
        Panel("Held-out length", "Mean tokens of a response, by data set.", ("eval/*/length_tokens",)),
        Panel("Verdicts", "What the grader said.", ("outcome/wrong", "outcome/no_answer", "outcome/timed_out", "outcome/bad_gold", "outcome/error"), percent=True),
        Panel("Held-out verdicts", "Responses that are not right, by what the grader said.", ("eval/num_wrong", "eval/num_no_answer", "eval/num_timed_out", "eval/num_error")),
    ),
    "Policy": (
        Panel("Divergence", "KL from the initial model, summed over a response.", ("objective/kl",)),
        Panel("Entropy", "Nats a token; near 0 the policy has stopped exploring.", ("policy/entropy_avg",)),
        Panel("Clipped", "Share of tokens whose ratio is clipped; above 30 % updates are too large.", ("policy/clipfrac_avg",), percent=True),
        Panel("Step size", "KL between the sampling and the updated policy, per token.", ("policy/approxkl_avg",)),
        Panel("Engine and trainer", "KL of the trainer's probabilities from those that the engine sampled with, nats a token; 0 up to rounding if both compute alike.", ("sampler/kl",)),
        Panel("Groups with signal", "Share of groups that hold both better and worse responses.", ("objective/groups_with_signal",), percent=True),
    ),
    "Optimisation": (
        Panel("Explained variance", "What share of the returns' variance the critic foretells; 1 is all, below 0 worse than a constant.", ("critic/explained_variance",)),
        Panel("Losses", "Policy and value loss.", ("loss/policy_avg", "loss/value_avg", "train/ptx_loss")),
        Panel("Gradient norms", "Before clipping.", ("grad_norm/actor", "grad_norm/critic", "grad_norm"), log=True),
        Panel("Learning rate", "Of the next step.", ("lr", "train/lr_critic")),
    ),
    "Curriculum": (
        Panel("Levels", "Chance that the next problem is of each kind.", ("curriculum/*/share",), percent=True, stacked=True, alone=True),
        Panel("Solved", "Share of right responses of each kind, lately.", ("curriculum/*/success",), percent=True, alone=True),
        Panel("Known and worth drawing from", "Shares of all kinds.", ("curriculum/known", "curriculum/worth"), percent=True),
    ),
    "Time": (
        Panel("Where the time goes", "Seconds of each episode, by phase.", ("time/rollout", "time/reward", "time/score", "time/update"), stacked=True),
        Panel("Training time", "Seconds since the start, evaluations left out.", ("time/total",)),
    ),
    "Memory": (
        Panel("Main memory", "GiB of the process that holds most: now, and the most so far.", ("memory/rss_bytes", "memory/rss_peak_bytes"), gib=True),
        Panel("GPU memory", "GiB of tensors on the fullest GPU: now, and the most so far.", ("memory/device_bytes", "memory/device_peak_bytes"), gib=True),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A panel with data. `traces` and `layout` are plotly's; `table` is the same as text under `heads`: label, first, last, best."""

    panel: Panel
    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    table: list[tuple[str, str, str, str]]
    heads: tuple[str, str, str] = ("curve", "first", "last")


def charts_of(runs: Sequence[Run], panels: Sequence[Panel]) -> Iterator[Chart]:
    """The panels for which any run has data."""
    for panel in panels:
        if not any(panel.found_in(run) for run in runs) or (panel.alone and len(runs) > 1):
            continue
        if panel.stacked:
            for run in runs:
                if panel.found_in(run):
                    yield _chart(panel, [run], len(runs) > 1)
        else:
            yield _chart(panel, runs, False)


def _chart(panel: Panel, runs: Sequence[Run], names_run: bool) -> Chart:
    traces: list[dict[str, Any]] = []
    table = []
    everything = list(dict.fromkeys(name for run in runs for name in panel.found_in(run)))
    for number, run in enumerate(runs):
        for name in panel.found_in(run):
            steps, values = _series(panel, run, name)
            if not values:
                continue
            place = everything.index(name)
            several = len(everything) > 1
            parts = [*([run.name] if len(runs) > 1 else []), *([_legend_name(name, everything)] if several else [])]
            label = " · ".join(parts) or panel.title
            # One run: a colour for each metric. Several: a colour for each run, a dash for each metric.
            colour = COLOURS[(number if len(runs) > 1 else place) % len(COLOURS)]
            traces += _band(panel, run, name, steps, colour) if len(everything) * len(runs) <= MAX_BANDS else []
            dash = DASHES[place % len(DASHES)] if len(runs) > 1 else DASHES[place // len(COLOURS) % len(DASHES)]
            traces.append(_line(panel, steps, values, label, colour, dash))
            best = _shown(panel, max(values)) if panel.percent else ""
            table.append((label, _shown(panel, values[0]), _shown(panel, values[-1]), best))
    title = f"{panel.title}: {runs[0].name}" if names_run else panel.title
    axis: dict[str, Any] = {"type": "log"} if panel.log else {}
    if panel.percent:
        axis |= {"tickformat": ".1~%", "rangemode": "tozero"}
    if panel.gib:
        axis |= {"ticksuffix": " GiB", "rangemode": "tozero"}
    layout = {"title": {"text": title}, "xaxis": {}, "yaxis": axis, "showlegend": len(table) > 1}
    return Chart(panel, traces, layout, table)


def _series(panel: Panel, run: Run, name: str) -> tuple[list[float], list[float]]:
    """Steps and values as the panel shows them. On a logarithmic axis there is no 0."""
    steps, values = run.series(name)
    if panel.gib:
        values = [value / 2**30 for value in values]
    if panel.log:
        kept = [(step, value) for step, value in zip(steps, values, strict=True) if value > 0]
        steps, values = [step for step, _ in kept], [value for _, value in kept]
    return steps, values


def _line(panel: Panel, steps: list[float], values: list[float], label: str, colour: str, dash: str) -> dict[str, Any]:
    line: dict[str, Any] = {
        "type": "scatter",
        "x": steps,
        "y": values,
        "name": label,
        "mode": "lines+markers" if len(steps) < 4 else "lines",
    }
    line |= {"line": {"color": colour, "dash": dash, "width": 2}, "marker": {"color": colour}}
    if panel.stacked:
        line |= {"stackgroup": "one", "mode": "lines"}
    return line


def _band(panel: Panel, run: Run, metric: str, steps: list[float], colour: str) -> list[dict[str, Any]]:
    """The 95 % interval of an accuracy, where the run has it at all steps."""
    ends = [_series(panel, run, f"{metric}_{end}") for end in ("low", "high")]
    if not all(of_end == steps for of_end, _ in ends):
        return []
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    edge = {
        "type": "scatter",
        "x": steps,
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    filled = {"fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},{BAND_OPACITY})"}
    return [edge | {"y": ends[0][1]}, edge | {"y": ends[1][1]} | filled]


# Names in a legend of metrics whose own name does not tell them from the others of their chart.
LABELS = {
    "eval/length_tokens": "held out", "eval/loss": "held out", "eval/truncated": "held out",
    "lr": "actor", "memory/device_bytes": "now", "memory/device_peak_bytes": "most so far", "memory/rss_bytes": "now",
    "memory/rss_peak_bytes": "most so far", "response/length_tokens": "sampled", "response/truncated": "sampled",
    "train/loss": "training", "train/lr_critic": "critic", "train/ptx_loss": "ptx",
}  # fmt: skip


def _legend_name(metric: str, beside: Sequence[str]) -> str:
    """A metric's name as a legend shows it beside others: what tells them apart."""
    topic, *rest = metric.split("/")
    if topic in ("eval", "curriculum") and len(rest) == 2:  # of a data set
        alike = len({name.rpartition("/")[2] for name in beside}) == 1
        return rest[0] if alike else " ".join(rest).replace("_at_", "@")
    return LABELS.get(metric, ("/".join(rest) or topic).replace("_at_", "@").removeprefix("num_"))


def _shown(panel: Panel, value: float) -> str:
    if panel.gib:
        return f"{value:.2f} GiB"
    return f"{value:.1%}" if panel.percent else f"{value:.4g}"
