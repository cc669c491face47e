"""The curve of pass@k against a count by hand."""

import pytest

from rlvr.evaluation.statistics import mean_interval
from rlvr.report.pass_at_k import pass_curve


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
