"""The page: one HTML file with everything in it."""

import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined

from rlvr.errors import UserError
from rlvr.report.charts import COLOURS, TOPICS, charts_of, matching
from rlvr.report.figures import MAIN_FIGURES
from rlvr.report.runs import Run
from rlvr.report.samples import samples_of

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
    topics = {name: charts for name, charts in topics.items() if charts}
    numbered = [chart for charts in topics.values() for chart in charts]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(
        resources.files("rlvr.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
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


def summary_rows(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """Rows of first and last values, a column for each run."""
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
    """Settings in which the runs differ, but for where they are saved."""
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
