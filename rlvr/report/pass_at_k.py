"""The figure of pass@k: of several evaluated models, over k, with intervals.

Where a trained model's curve starts higher and ends where its base's does, training has sharpened: it answers at once what the base
finds in k tries. Where it ends higher too, it has learned to solve what the base does not.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from rlvr.evaluation.records import Line
from rlvr.evaluation.statistics import mean_interval, pass_at_k
from rlvr.evaluation.summary import by_problem, ks_of
from rlvr.report.charts import BAND_OPACITY, COLOURS, DASHES
from rlvr.report.figures import figure

LINES = {"solid": "-", "dot": ":", "dash": "--", "dashdot": "-.", "longdash": (0, (8, 3))}
"""plotly's names of lines as matplotlib draws them."""

Curve = list[tuple[int, float, float, float]]
"""k, pass@k, and the ends of its 95 % interval."""


def pass_curve(lines: Sequence[Line]) -> Curve:
    """pass@k for k = 1, 2, 4, ... and all samples, unbiased, with the interval over problems."""
    counts = [(len(group), sum(bool(line["correct"]) for line in group)) for group in by_problem(lines).values()]
    found = []
    for k in ks_of(counts[0][0]):
        shares = [pass_at_k(samples, right, k) for samples, right in counts]
        found.append((k, fmean(shares), *mean_interval(shares)))
    return found


def draw_pass_at_k(evaluations: Mapping[str, Sequence[Line]], path: Path) -> None:
    """Draw the curves of evaluations, by name."""
    with figure(path) as (drawn, (axes,)):
        ticks: set[int] = set()
        for place, (name, lines) in enumerate(evaluations.items()):
            ks, means, lows, highs = zip(*pass_curve(lines), strict=True)
            ticks.update(ks)
            colour, style = COLOURS[place % len(COLOURS)], LINES[DASHES[place // len(COLOURS) % len(DASHES)]]
            shares = [[100 * value for value in values] for values in (means, lows, highs)]
            axes.plot(ks, shares[0], linestyle=style, marker="o", markersize=4, color=colour, label=name)
            axes.fill_between(ks, shares[1], shares[2], color=colour, alpha=BAND_OPACITY, linewidth=0)
        axes.set_xscale("log", base=2)
        axes.set_xticks(sorted(ticks), [str(k) for k in sorted(ticks)])
        axes.set(xlabel="k, answers to a problem", ylabel="problems with a right answer among k, %", ylim=(0, 101))
        # Above the axes, since curves may run anywhere in them.
        drawn.legend(loc="outside upper left")
