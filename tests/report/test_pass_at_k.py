"""The curve of pass@k against a count by hand."""

from pathlib import Path
from typing import Any

import pytest

from rlvr.evaluation.statistics import mean_interval
from rlvr.report.pass_at_k import draw_pass_at_k, pass_curve


def test_the_curve_is_unbiased_and_its_interval_is_over_problems() -> None:
    """Two problems with 6 answers each: one right, and all right."""
    lines = [
        {"dataset": "d", "problem": str(problem), "correct": number < right}
        for problem, right in ((0, 1), (1, 6))
        for number in range(6)
    ]
    curve = pass_curve(lines)
    assert [k for k, *_ in curve] == [1, 2, 4, 6]
    for k, mean, low, high in curve:
        assert mean == pytest.approx((k / 6 + 1) / 2) and [low, high] == pytest.approx(mean_interval([k / 6, 1.0]))


def test_the_legend_hides_no_curve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A curve near 0 once lay under it, with the start of training that the figure is about."""
    figures = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(figures.Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    never = [{"dataset": "d", "problem": "0", "correct": False} for _ in range(8)]
    draw_pass_at_k({"a model with a name of some length": never, "another": never}, tmp_path / "figure.png")
    (figure,) = drawn
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (legend,) = figure.legends
    assert not legend.get_window_extent().overlaps(axes.get_window_extent())
