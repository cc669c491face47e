"""The figure of a study: the metric over the responses sampled, and at the end."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from rlvr.evaluation.statistics import bootstrap_interval, interquartile_mean
from rlvr.report.figures import figure
from rlvr.study.plan import Study, label
from rlvr.study.results import Curve, in_percent

STYLES = ("-", "--", ":", "-.")


def ticks(first: float, last: float) -> list[float]:
    """0 and the 1, 2, 5, 10, ... up to `last` that have room on an axis which is linear up to `first` and logarithmic from there: in the
    narrow linear part, those of its right half."""
    from matplotlib.ticker import LogLocator

    return [0, *(at for at in LogLocator(subs=(1, 2, 5)).tick_values(first, last) if first / 2 <= at <= last)]


def draw(study: Study, curves: Sequence[Curve], path: Path) -> None:
    """Left: the mean over seeds. Right: each run at its end, and the interquartile mean with its 95 % interval; the names there have the
    colours and lines of both, so that no legend hides a curve."""
    from matplotlib import colormaps
    from matplotlib.ticker import FuncFormatter, NullFormatter

    scale, unit = (100, ", %") if in_percent(study.metric) else (1, "")
    rows = [found for cell in study.cells if (found := [curve for curve in curves if curve.cell == cell])]
    palette = colormaps["tab10"].colors  # type: ignore[attr-defined]
    colours = [palette[place % len(palette)] for place in range(len(rows))]
    with figure(path, columns=2, width=11, height=max(4.8, 1.2 + 0.28 * len(rows))) as (_, (left, right)):
        for place, found in enumerate(rows):
            colour, style = colours[place], STYLES[place // len(palette) % len(STYLES)]
            points = range(min(len(curve.values) for curve in found))
            mean = [scale * fmean(curve.values[point] for curve in found) for point in points]
            responses = [fmean(curve.responses[point] for curve in found) for point in points]
            left.plot(responses, mean, style, color=colour, linewidth=1.4)
            ends = [scale * curve.values[-1] for curve in found]
            right.plot(ends, [place] * len(ends), "|", color=colour)
            middle, (low, high) = interquartile_mean(ends), bootstrap_interval([ends])
            bars = right.errorbar(
                middle, place, xerr=[[middle - low], [high - middle]], fmt="o", color=colour, capsize=3
            )
            bars.lines[2][0].set_linestyle(style)
        left.set(xlabel="responses sampled", ylabel=f"{study.metric}{unit}", title="mean over seeds")
        right.set(xlabel=f"{study.metric}{unit}")
        # From the right, because names leave the axes little room.
        right.set_title("at the end: seeds, interquartile mean, 95 % interval", loc="right")
        right.set_yticks(range(len(rows)), [label(found[0].cell) for found in rows])
        for name, colour in zip(right.get_yticklabels(), colours, strict=True):
            name.set_color(colour)
        right.invert_yaxis()
        # Most is learned early, so the axis is logarithmic; from the start to the first look, which is no logarithm, it is linear.
        first = min((at for curve in curves for at in curve.responses if at), default=1.0)
        left.set_xscale("symlog", linthresh=first, linscale=0.3)
        left.set_xticks(ticks(first, left.get_xlim()[1]))
        left.xaxis.set_major_formatter(FuncFormatter(lambda responses, _: f"{responses:,.0f}"))
        left.xaxis.set_minor_formatter(NullFormatter())
