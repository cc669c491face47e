"""Which curves the report shows, and how: panels by topic, drawn by plotly in the browser."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr.evaluation.statistics import wilson_interval
from rlvr.report.runs import Run

# Okabe and Ito's colours, which people tell apart whatever their colour vision; yellow is left out on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#999999")
DASHES = ("solid", "dot", "dash", "dashdot", "longdash")
BAND = 0.18


@dataclass(frozen=True)
class Panel:
    """One chart.

    Attributes:
        title: what it shows.
        text: how to read it, in a sentence.
        metrics: curves, by name; a name that ends in * stands for all that begin so, without a further /.
        percent: whether values are shares.
        log: logarithmic axis.
        stacked: as areas on top of each other, one run at a time.
    """

    title: str
    text: str
    metrics: tuple[str, ...]
    percent: bool = False
    log: bool = False
    stacked: bool = False

    def found_in(self, run: Run) -> list[str]:
        """Its metrics that the run has."""
        found: list[str] = []
        for name in self.metrics:
            stem = name.removesuffix("*")
            same = [
                m
                for m in run.metrics
                if m == name or (name.endswith("*") and m.startswith(stem) and "/" not in m[len(stem) :])
            ]
            # Beside others, what never happened is not drawn.
            found += [m for m in same if (any if found else bool)(run.series(m)[1])]
        return found


TOPICS: dict[str, tuple[Panel, ...]] = {
    "Learning": (
        Panel("Held-out accuracy", "Right answers to problems that were not trained on; the band is the 95 % interval.", ("eval/accuracy",), percent=True),
        Panel("Right answers in training", "Share of sampled responses that the grader accepts.", ("outcome/correct",), percent=True),
        Panel("Reward", "Mean score of a response, before the divergence is taken off.", ("objective/scores",)),
        Panel("Components", "Each reward function's own mean.", ("reward/*",)),
        Panel("Loss", "Supervised runs: the mean loss of a step; held out where there is such data.", ("train/loss", "eval/loss")),
        Panel("Pairs ranked rightly", "Reward models: share of pairs whose better response scores higher.", ("train/accuracy",), percent=True),
    ),
    "Responses": (
        Panel("Length", "Mean tokens of a response.", ("response/length_tokens", "eval/length_tokens")),
        Panel("Cut off", "Share of responses that hit the length limit.", ("response/truncated", "eval/truncated"), percent=True),
        Panel("In format", "Held-out responses with all tags in their places.", ("eval/format",), percent=True),
        Panel("Verdicts", "What the grader said.", ("outcome/wrong", "outcome/no_answer", "outcome/timed_out", "outcome/bad_gold", "outcome/error"), percent=True),
    ),
    "Policy": (
        Panel("Divergence", "KL from the initial model, summed over a response.", ("objective/kl",)),
        Panel("Entropy", "Nats a token; near 0 the policy has stopped exploring.", ("policy/entropy_avg",)),
        Panel("Clipped", "Share of tokens whose ratio is clipped; above 30 % updates are too large.", ("policy/clipfrac_avg",), percent=True),
        Panel("Step size", "KL between the sampling and the updated policy, per token.", ("policy/approxkl_avg",)),
        Panel("Groups with signal", "Share of groups that hold both better and worse responses.", ("dynamic/groups_with_signal", "objective/groups_with_signal"), percent=True),
    ),
    "Optimisation": (
        Panel("Explained variance", "What share of the returns' variance the critic foretells; 1 is all, below 0 worse than a constant.", ("critic/explained_variance",)),
        Panel("Losses", "Policy and value loss.", ("loss/policy_avg", "loss/value_avg", "train/ptx_loss")),
        Panel("Gradient norms", "Before clipping.", ("grad_norm/actor", "grad_norm/critic", "grad_norm"), log=True),
        Panel("Learning rate", "Of the next step.", ("lr", "train/lr_critic")),
    ),
    "Time": (
        Panel("Where the time goes", "Seconds of each episode, by phase.", ("time/rollout", "time/reward", "time/score", "time/update"), stacked=True),
        Panel("Training time", "Seconds since the start, evaluations left out.", ("time/total",)),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Chart:
    """A panel with data. `traces` and `layout` are plotly's; `table` is the same as text: label, first, last, best."""

    panel: Panel
    traces: list[dict[str, Any]]
    layout: dict[str, Any]
    table: list[tuple[str, str, str, str]]


def charts_of(runs: Sequence[Run], panels: Sequence[Panel]) -> Iterator[Chart]:
    """The panels for which any run has data."""
    for panel in panels:
        if not any(panel.found_in(run) for run in runs):
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
            steps, values = run.series(name)
            place = everything.index(name)
            several = len(everything) > 1
            parts = [*([run.name] if len(runs) > 1 else []), *([_plain(name, everything)] if several else [])]
            label = " · ".join(parts) or panel.title
            # One run: a colour for each metric. Several: a colour for each run, a dash for each metric.
            colour = COLOURS[(number if len(runs) > 1 else place) % len(COLOURS)]
            if name == "eval/accuracy":
                traces += _band(run, steps, values, colour)
            traces.append(
                _line(panel, steps, values, label, colour, DASHES[place % len(DASHES)] if len(runs) > 1 else "solid")
            )
            best = max(values) if panel.percent else None
            table.append(
                (
                    label,
                    _shown(panel, values[0]),
                    _shown(panel, values[-1]),
                    "" if best is None else _shown(panel, best),
                )
            )
    title = f"{panel.title}: {runs[0].name}" if names_run else panel.title
    axis: dict[str, Any] = {"type": "log"} if panel.log else {}
    if panel.percent:
        axis |= {"tickformat": ".1~%", "rangemode": "tozero"}
    layout = {
        "title": {"text": title},
        "xaxis": {},
        "yaxis": axis,
        "showlegend": len(table) > 1,
    }
    return Chart(panel, traces, layout, table)


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


def _band(run: Run, steps: list[float], values: list[float], colour: str) -> list[dict[str, Any]]:
    """The 95 % interval of an accuracy, where the number of problems is known."""
    counts = dict(zip(*run.series("eval/problems"), strict=True))
    if not all(step in counts for step in steps):
        return []
    bounds = [
        wilson_interval(value * counts[step], int(counts[step])) for step, value in zip(steps, values, strict=True)
    ]
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    edge = {
        "type": "scatter",
        "x": steps,
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
    return [
        edge | {"y": [low for low, _ in bounds]},
        edge
        | {"y": [high for _, high in bounds], "fill": "tonexty", "fillcolor": f"rgba({red},{green},{blue},{BAND})"},
    ]


def _plain(metric: str, beside: Sequence[str]) -> str:
    """A metric's name as a legend shows it beside others: what tells them apart."""
    topics = {name.partition("/")[0] for name in beside}
    if len(topics) > 1:
        topic = metric.partition("/")[0]
        return {"eval": "held out", "train": "training", "response": "sampled"}.get(topic, metric)
    return metric.partition("/")[2] or metric


def _shown(panel: Panel, value: float) -> str:
    return f"{value:.1%}" if panel.percent else f"{value:.4g}"
