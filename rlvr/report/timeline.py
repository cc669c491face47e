"""Who did what, when, and who waited for whom: the last episodes of a run's timeline (trace.json), and what to change."""

import json
from collections.abc import Sequence
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from rlvr.boost.timeline import TRAINER, Span
from rlvr.report.charts import COLOURS, Chart, Panel
from rlvr.report.runs import Run

ROLLOUT = "rollout"
SHOWN_ROUNDS = 4
WAITS, BUSY, IDLE = 0.25, 0.85, 0.5
"""A share of the time that training waits which is worth a change; shares of theirs that workers work: all they can, and too little."""
_READ_BYTES = 2**20
"""Of the file's end: more than what is shown."""


def read_spans(path: Path) -> list[Span]:
    """The spans at the end of a trace file, by their beginnings; lines that are damaged are left out. [] without the file."""
    if not path.is_file():
        return []
    with path.open("rb") as file:
        names = _names(islice(file, 1000))
        file.seek(max(0, path.stat().st_size - _READ_BYTES))
        lines = file.read().splitlines()
    names |= _names(lines)
    found = [span for line in lines if (span := _span(_event(line), names)) is not None]
    return sorted(found, key=lambda span: span.begin_s)


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line.strip().rstrip(b","))
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _names(lines: Any) -> dict[Any, str]:
    """Roles by their numbers."""
    events = [event for line in lines if (event := _event(line)).get("ph") == "M"]
    return {str(e.get("tid")): str(e["args"].get("name")) for e in events if isinstance(e.get("args"), dict)}


def _span(event: dict[str, Any], names: dict[Any, str]) -> Span | None:
    begin, lasted = event.get("ts"), event.get("dur")
    if event.get("ph") != "X" or not isinstance(begin, int | float) or not isinstance(lasted, int | float):
        return None
    try:
        begin_s, end_s = begin / 1e6, (begin + lasted) / 1e6
    except OverflowError:
        return None
    if not isfinite(end_s) or lasted < 0:
        return None
    return Span(names.get(str(event.get("tid")), "?"), str(event.get("name")), begin_s, end_s)


def last_rounds(spans: Sequence[Span], rounds: int = SHOWN_ROUNDS) -> list[Span]:
    """The spans from the beginning of a rollout to that of another: of the last episodes, where each has one. What lies across an end is
    cut."""
    begins = [span.begin_s for span in spans if span.role == TRAINER and span.name == ROLLOUT]
    if len(begins) < 2:
        return []
    begin, end = begins[max(0, len(begins) - 1 - rounds)], begins[-1]
    inside = [span for span in spans if span.end_s > begin and span.begin_s < end]
    return [Span(s.role, s.name, max(s.begin_s, begin), min(s.end_s, end)) for s in inside]


def shares(spans: Sequence[Span]) -> dict[tuple[str, str], float]:
    """Of the whole time, by role and by what it did."""
    if not spans:
        return {}
    whole = max(span.end_s for span in spans) - min(span.begin_s for span in spans)
    found: dict[tuple[str, str], float] = {}
    for span in spans:
        key = span.role, span.kind
        found[key] = found.get(key, 0.0) + (span.end_s - span.begin_s) / whole
    return found


def advice(spans: Sequence[Span]) -> str:
    """What would fill the machine better, in a sentence."""
    found = shares(spans)
    waits = found.get((TRAINER, ROLLOUT), 0.0)
    workers = {role for role, _ in found if role != TRAINER}
    if not found:
        return ""
    if not workers:
        return f"Generation takes {waits:.0%} of the time. " + (
            "Rollout workers (--ray --num_rollout_workers 2 --max_staleness 1) would generate while this process learns."
            if WAITS < waits
            else ""
        )
    busy = sum(share for (role, _), share in found.items() if role != TRAINER) / len(workers)
    said = f"Training waits for rollouts {waits:.0%} of the time, and rollout workers work {busy:.0%} of theirs"
    if waits > WAITS and busy > BUSY:
        return f"{said}: add a worker (--num_rollout_workers {len(workers) + 1})."
    if waits > WAITS:
        return f"{said}: let them run further ahead (a greater --max_staleness), or in smaller parts (--generation_batch_size)."
    if busy < IDLE and len(workers) > 1:
        return f"{said}: fewer workers would do."
    return f"{said}: neither waits much for the other."


def timelines(runs: Sequence[Run]) -> list[Chart]:
    """A chart for each run that has a timeline."""
    found = [(run, last_rounds(read_spans(run.folder / "trace.json"))) for run in runs]
    return [_chart(spans, run.name if len(runs) > 1 else "") for run, spans in found if spans]


def _chart(spans: Sequence[Span], of: str) -> Chart:
    begin_s = min(span.begin_s for span in spans)
    names = list(dict.fromkeys(span.kind for span in spans))
    traces = [_bars([s for s in spans if s.kind == name], begin_s, name, i) for i, name in enumerate(names)]
    text = f"Who did what in the last episodes, in seconds. {advice(spans)} The whole run: trace.json, for ui.perfetto.dev."
    table = [(f"{role}: {name}", f"{share:.0%}", "", "") for (role, name), share in sorted(shares(spans).items())]
    layout = {
        "title": {"text": f"Timeline: {of}" if of else "Timeline"},
        "barmode": "overlay",
        "hovermode": "closest",
        "xaxis": {"ticksuffix": " s"},
        "yaxis": {"autorange": "reversed", "type": "category", "categoryorder": "category descending"},
        "showlegend": True,
    }
    return Chart(Panel("Timeline", text, ()), traces, layout, table, heads=("role", "share of the time", ""))


def _bars(spans: Sequence[Span], begin_s: float, name: str, place: int) -> dict[str, Any]:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [span.role for span in spans],
        "base": [round(span.begin_s - begin_s, 3) for span in spans],
        "x": [round(span.end_s - span.begin_s, 3) for span in spans],
        "text": [span.name for span in spans],
        "textposition": "none",
        "hovertemplate": "%{text}: %{x:.2f} s, from %{base:.2f} s<extra></extra>",
        "marker": {"color": COLOURS[place % len(COLOURS)]},
    }
