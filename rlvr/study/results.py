"""What a study measured: `Curve`s read from the folders of runs, kept as JSON, and the table with its intervals."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean

from rlvr.config.files import parse_json, read_json, read_text
from rlvr.errors import UserError
from rlvr.evaluation.statistics import bootstrap_interval, interquartile_mean, t_interval
from rlvr.study.plan import Cell, Run, Study, label

METRICS, ENVIRONMENT = "metrics.jsonl", "environment.json"
SHARES = ("accuracy", "pass_at", "maj_at", "correct", "format", "truncated")
"""Parts of the names of metrics that are shares, which are shown in percent."""
KEPT_OF_ENVIRONMENT = ("python", "rlvr", "torch", "transformers", "colossalai", "device", "machine")


@dataclass(frozen=True)
class Curve:
    """One finished run: the metric, after so many responses and seconds of training (without evaluations).

    Attributes:
        cell, seed: which run.
        values: of the metric.
        responses, seconds: as long; no seconds where nothing was said of them.
        also: means of further metrics.
    """

    cell: Cell
    seed: int
    values: list[float]
    responses: list[float]
    seconds: list[float]
    also: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, run: Run, study: Study) -> "Curve":
        """From the rows of a run's metrics.jsonl.

        Raises:
            UserError: the metric was never measured.
        """
        path = run.folder / METRICS
        try:
            rows = [parse_json(line) for line in read_text(path).splitlines()]
        except (OSError, ValueError) as error:
            raise UserError(f"{path} can't be read: {error}") from None
        measured = [row for row in rows if study.metric in row]
        if not measured:
            known = sorted({name for row in rows for name in row if name.startswith("eval/")})
            raise UserError(
                f"{run.folder} has no metric {study.metric!r}; of evaluations it has {', '.join(known) or 'none'}"
            )
        also = {}
        for name, (first, last) in study.also.items():
            found = [row[name] for row in rows if name in row and first <= row["step"] <= last]
            if found:
                also[name] = round(fmean(found), 6)
        return cls(
            cell=run.cell,
            seed=run.seed,
            values=[row[study.metric] for row in measured],
            responses=[row.get("episode", 0) for row in measured],
            seconds=[round(row.get("time/total", 0.0), 3) for row in measured],
            also=also,
        )

    def reached(self, target: float, along: Sequence[float]) -> float | None:
        """Where on `along` (responses, seconds) the metric first reaches the target, between two measurements on a straight line."""
        for number, now in enumerate(self.values if along else ()):
            if now >= target:
                if number == 0:
                    return along[0]
                before = self.values[number - 1]
                share = (target - before) / (now - before)
                return along[number - 1] + share * (along[number] - along[number - 1])
        return None

    def after(self, responses: float) -> float | None:
        """The metric after so many responses, between two measurements on a straight line; None before the first and after the last."""
        for number in range(1, len(self.values)):
            low, high = self.responses[number - 1 : number + 1]
            if low <= responses <= high:
                share = (responses - low) / (high - low) if high > low else 1.0
                return self.values[number - 1] + share * (self.values[number] - self.values[number - 1])
        return None


def read_results(study: Study, kept: Path | None = None) -> list[Curve]:
    """The curves of the study's finished runs; of runs that are not there, those that `kept` has (`write_results`).

    Raises:
        UserError: there are none, or a file that is none of these.
    """
    found = {(label(run.cell), run.seed): Curve.read(run, study) for run in study.runs if run.is_finished}
    if kept is not None and kept.is_file():
        try:
            earlier = [Curve(**curve) for curve in read_json(kept)["runs"]]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"--results {kept} holds no results of a study: {error}") from None
        found = {(label(curve.cell), curve.seed): curve for curve in earlier} | found
    curves = [found[key] for run in study.runs if (key := (label(run.cell), run.seed)) in found]
    if not curves:
        raise UserError(f"no finished run under {study.out}: leave --report_only out")
    return curves


def write_results(path: Path, study: Study, curves: Sequence[Curve]) -> None:
    """Keep the curves as JSON, with the plan, and the machine and versions of the first run that is there; beside it, as .md, the
    table with these.

    Raises:
        UserError: it can't be written.
    """
    there = [run.folder / ENVIRONMENT for run in study.runs if (run.folder / ENVIRONMENT).is_file()]
    if there:
        environment = read_json(there[0])
        environment = {name: environment[name] for name in KEPT_OF_ENVIRONMENT if name in environment}
    else:
        environment = read_json(path)["environment"]
    plan = {name: value for name, value in asdict(study).items() if name != "out"}  # which is a place on this machine
    kept = {"study": plan, "environment": environment, "runs": [asdict(curve) for curve in curves]}
    versions = ", ".join(f"{name} {value}" for name, value in environment.items() if name not in ("device", "machine"))
    text = f"{table(study, curves)}\n\n{environment.get('machine', '')}; {versions}.\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"--results {path}: {error.strerror}") from None


def in_percent(metric: str) -> bool:
    return any(part in metric for part in SHARES)


# The table.

Along = tuple[str, Callable[[Curve], Sequence[float]]]
"""What a run is measured along: its name, and the values."""


@dataclass(frozen=True)
class Group:
    """Curves that are one row of the table, by stratum."""

    names: tuple[str, ...]
    strata: tuple[tuple[Curve, ...], ...]

    @property
    def curves(self) -> list[Curve]:
        return [curve for stratum in self.strata for curve in stratum]


def groups(study: Study, curves: Sequence[Curve]) -> list[Group]:
    """A group for each combination of the grid that was run; then those across the axes of `across`."""
    of_cell = [tuple(curve for curve in curves if curve.cell == cell) for cell in study.cells]
    rows = [Group(tuple(cell.values()), (found,)) for cell, found in zip(study.cells, of_cell, strict=True) if found]
    if study.across:
        together: dict[tuple[str, ...], list[tuple[Curve, ...]]] = {}
        for cell, found in zip(study.cells, of_cell, strict=True):
            if found:
                names = tuple("all" if axis in study.across else name for axis, name in cell.items())
                together.setdefault(names, []).append(found)
        rows += [Group(names, tuple(strata)) for names, strata in together.items() if len(strata) > 1]
    return rows


def table(study: Study, curves: Sequence[Curve]) -> str:
    """Markdown: the metric at the end, its difference from the baseline, responses and seconds to the targets and in all.

    Figures are interquartile means with stratified bootstrap intervals of 95 %; differences are means over pairs of runs with the
    same seed, with Student's interval, each after as many responses as the shorter of the two has.
    """
    percent = in_percent(study.metric)
    scale, unit = (100.0, " %") if percent else (1.0, "")
    shown = [f"{scale * target:g}{unit}" for target in study.targets]
    heads = [*study.axes, f"{study.metric} at the end"]
    heads += [f"after {responses:,} responses" for responses in study.after]
    heads += [f"difference from {label(study.baseline)} after as many responses"] if study.baseline else []
    timed = any(curve.seconds for curve in curves)
    alongs: list[Along] = [("responses", lambda curve: curve.responses)]
    alongs += [("seconds", lambda curve: curve.seconds)] if timed else []
    heads += [f"{what} to {target}" for target in shown for what, _ in alongs]
    heads += [f"{name}, episodes {first} to {last}" for name, (first, last) in study.also.items()]
    heads += [*(what for what, _ in alongs), "runs"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for group in groups(study, curves):
        cells = [f"`{name}`" for name in group.names]
        cells.append(_figure(group, lambda curve: scale * curve.values[-1], unit, 1 if percent else 4))
        for count in study.after:
            cells.append(_figure(group, partial(_after, count, scale), unit, 1 if percent else 4, ""))
        if study.baseline:
            cells.append(_difference(study, group, curves, scale))
        for target in study.targets:
            for _, along in alongs:
                cells.append(_figure(group, lambda curve, t=target, of=along: curve.reached(t, of(curve))))  # type: ignore[misc]
        for name in study.also:
            cells.append(_figure(group, lambda curve, n=name: curve.also.get(n), digits=2, absent=""))  # type: ignore[misc]
        cells += [f"{fmean(along(curve)[-1] for curve in group.curves if along(curve)):,.0f}" for _, along in alongs]
        lines.append(f"| {' | '.join(cells)} | {len(group.curves)} |")
    return "\n".join(lines)


def _figure(
    group: Group, of: Callable[[Curve], float | None], unit: str = "", digits: int = 0, absent: str = "never"
) -> str:
    """The interquartile mean of the runs that have it, its interval, and how many these are if not all."""
    strata = [[value for curve in stratum if (value := of(curve)) is not None] for stratum in group.strata]
    strata = [values for values in strata if values]
    found = [value for values in strata for value in values]
    if not found:
        return absent
    text = f"{interquartile_mean(found):,.{digits}f}"
    if len(found) > 1:
        low, high = bootstrap_interval(strata)
        text += f" ({low:,.{digits}f} to {high:,.{digits}f})"
    return text + unit + (f", {len(found)} of {len(group.curves)}" if len(found) < len(group.curves) else "")


def _after(responses: int, scale: float, curve: Curve) -> float | None:
    value = curve.after(responses)
    return None if value is None else scale * value


def _difference(study: Study, group: Group, curves: Sequence[Curve], scale: float) -> str:
    """Mean of the metric less the baseline's with the same seed, and the same place on the other axes, where the shorter run ends."""
    by_place = {(label(curve.cell), curve.seed): curve for curve in curves}
    pairs = []
    for curve in group.curves:
        other = by_place.get((label({**curve.cell, **study.baseline}), curve.seed))
        if other is None or other is curve:
            continue
        end = min(curve.responses[-1], other.responses[-1])
        values = curve.after(end), other.after(end)
        if values[0] is not None and values[1] is not None:
            pairs.append(scale * (values[0] - values[1]))
    if not pairs:
        return ""
    mean, half = t_interval(pairs)
    digits = 1 if scale > 1 else 4
    return f"{mean:+.{digits}f}" + (f" ± {half:.{digits}f}" if math.isfinite(half) else "")
