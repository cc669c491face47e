"""The report's page: one HTML file with everything in it, so that it can be sent, kept, and read offline.

`page.html.j2` is its template, `style.css` the style sheet; `rlvr/report/charts.py` has the charts and their colours. Text of runs is
hostile: jinja escapes it, and `_script_safe` what goes into the script.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from rlvr.errors import UserError
from rlvr.report.charts import COLOURS, TOPICS, charts_of, matching
from rlvr.report.runs import MAIN_FIGURES, Run
from rlvr.report.timeline import timelines

SAMPLES_OF_A_STEP = 4
SAMPLED_STEPS = 6
"""Steps whose samples are shown, spread from the first to the last."""
MAX_CHARACTERS = 4000
"""Of a prompt or response; more is cut."""
_TAGGED = re.compile(r"(<(think|answer)>.*?(?:</\2>|$))", re.DOTALL)


@dataclass(frozen=True)
class ResponsePart:
    """A stretch of a response: `think`, `answer`, or other text."""

    kind: str
    text: str


@dataclass(frozen=True)
class ShownSample:
    """One response as the page shows it."""

    prompt: str
    parts: tuple[ResponsePart, ...]
    gold: str
    score: str
    verdict: str


def parts_of(response: str) -> tuple[ResponsePart, ...]:
    """The response cut at its think and answer tags; nothing is lost.

    >>> [(p.kind, p.text) for p in parts_of("<think>a</think> b <answer>c")]
    [('think', '<think>a</think>'), ('other', ' b '), ('answer', '<answer>c')]
    """
    parts, end = [], 0
    for match in _TAGGED.finditer(response):
        if match.start() > end:
            parts.append(ResponsePart("other", response[end : match.start()]))
        parts.append(ResponsePart(match[2], match[1]))
        end = match.end()
    if end < len(response):
        parts.append(ResponsePart("other", response[end:]))
    return tuple(parts)


def samples_of(run: Run) -> dict[int, list[ShownSample]]:
    """Some samples at some steps, from the first to the last."""
    by_step: dict[int, list[Mapping[str, Any]]] = {}
    for row in run.samples:
        if isinstance(row.get("step"), int):
            by_step.setdefault(row["step"], []).append(row)
    return {step: [_shown(row) for row in by_step[step][:SAMPLES_OF_A_STEP]] for step in _spread(sorted(by_step))}


def _spread(steps: Sequence[int]) -> list[int]:
    if len(steps) <= SAMPLED_STEPS:
        return list(steps)
    return [steps[round(i * (len(steps) - 1) / (SAMPLED_STEPS - 1))] for i in range(SAMPLED_STEPS)]


def _shown(row: Mapping[str, Any]) -> ShownSample:
    score = row.get("score")
    return ShownSample(
        prompt=str(row.get("prompt", ""))[-MAX_CHARACTERS:],
        parts=parts_of(str(row.get("response", ""))[:MAX_CHARACTERS]),
        gold=str(row.get("gold", "")),
        score=f"{score:.3g}" if isinstance(score, int | float) else "-",
        verdict=str(row.get("verdict", "-")),
    )


SUMMARY = (
    MAIN_FIGURES[0],
    ("eval/*/accuracy", "held-out accuracy, *", "{:.1%}"),
    *MAIN_FIGURES[1:],
    ("time/total", "seconds of training", "{:.0f}"),
)


def render(runs: Sequence[Run], refresh_s: int | None = None) -> str:
    """HTML of a report on the runs; it loads nothing from elsewhere.

    Args:
        runs: at least one; several are overlaid.
        refresh_s: seconds after which the page loads itself anew; None = never.

    Raises:
        UserError: plotly is not installed.
    """
    topics = {name: list(charts_of(runs, panels)) for name, panels in TOPICS.items()}
    topics["Time"] += timelines(runs)
    topics = {name: charts for name, charts in topics.items() if charts}
    numbered = [chart for charts in topics.values() for chart in charts]
    return fill_template(
        "rlvr.report:page.html.j2",
        runs=runs,
        colours=[COLOURS[i % len(COLOURS)] for i in range(len(runs))],
        summary=summary_rows(runs),
        topics=topics,
        places={chart.panel.title + chart.layout["title"]["text"]: i for i, chart in enumerate(numbered)},
        figures=_script_safe([{"traces": c.traces, "layout": c.layout} for c in numbered]),
        samples={run.name: samples_of(run) for run in runs},
        differing=differing_settings(runs),
        refresh_s=refresh_s,
        plotly=_plotly(),
    )


def fill_template(place: str, **values: Any) -> str:
    """The template at `package:file`, filled in: what is put into it is escaped, `style` is the style sheet of all our pages."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    package, _, file = place.partition(":")
    template = environment.from_string(resources.files(package).joinpath(file).read_text(encoding="utf-8"))
    style = resources.files("rlvr.report").joinpath("style.css").read_text(encoding="utf-8")
    return template.render(style=style, **values)


def summary_rows(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """First and last value of each main figure, a column for each run."""
    everything = sorted({name for run in runs for name in run.metrics})
    rows = []
    for pattern, label, form in SUMMARY:
        for metric in matching(pattern, everything):
            cells = [_ends(run, metric, form) for run in runs]
            if any(cells):
                rows.append((label.replace("*", metric.split("/")[1]), cells))
    return rows


def _ends(run: Run, metric: str, form: str) -> str:
    values = run.series(metric)[1]
    ends = values[-1:] if metric == "time/total" else values[:1] + values[-1:]
    return " → ".join(dict.fromkeys(map(form.format, ends)))


def differing_settings(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Settings in which the runs differ, a column for each run; the folder, which always differs, is left out."""
    flat = [{f"{s}.{n}": value for s, values in run.settings.items() for n, value in values.items()} for run in runs]
    names = list(dict.fromkeys(name for one in flat for name in one))
    rows = [(name, [json.dumps(one.get(name)) for one in flat]) for name in names if name != "ckpt.save_path"]
    return [row for row in rows if len(set(row[1])) > 1]


def _script_safe(value: Any) -> str:
    """JSON that can't end the script element that it stands in."""
    return json.dumps(value).replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise UserError("rlvr report needs plotly: pip install 'rlvr[report]'") from None
    return get_plotlyjs()
