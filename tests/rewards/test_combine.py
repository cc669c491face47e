"""Several functions, one number: sums, normalised sums, and what a failed checker is paid."""

from statistics import fmean, stdev

import pytest

from rewards import RewardSet, Sample, UserError, resolve
from rewards.combine import normalise
from rewards.outcome import Outcome, Score

GROUPS = ["a", "a", "a", "b", "b"]
FIRST, SECOND = [1.0, 0.0, 1.0, 1.0, 1.0], [10.0, 30.0, 20.0, None, 5.0]


def one(response):
    return FIRST[int(response)]


def two(response):
    return SECOND[int(response)]


def totals(aggregation, weights=(2.0, 0.5), groups=GROUPS) -> list:
    samples = [Sample(str(i), None) for i in range(5)]
    combined = RewardSet([resolve(one), resolve(two)], weights, aggregation)(samples, groups)
    return [c.total for c in combined]


def test_the_plain_sum_skips_what_does_not_apply() -> None:
    assert totals("sum") == [7.0, 15.0, 12.0, 2.0, 4.5]
    assert totals("sum", groups=None) == totals("sum")


def test_sum_then_normalise() -> None:
    a, b = [7.0, 15.0, 12.0], [2.0, 4.5]
    expected = [(x - fmean(g)) / (stdev(g) + 1e-4) for g in (a, b) for x in g]
    assert totals("sum_then_normalise") == pytest.approx(expected)


def test_normalise_then_sum() -> None:
    x = [(v - 2 / 3) / (stdev(FIRST[:3]) + 1e-4) for v in FIRST[:3]]
    y = [(v - 20) / (stdev(SECOND[:3]) + 1e-4) for v in SECOND[:3]]
    expected = [2.0 * i + 0.5 * j for i, j in zip(x, y, strict=True)] + [0.0, 0.0]
    assert totals("normalise_then_sum") == pytest.approx(expected)


def test_without_groups_the_batch_is_one() -> None:
    everything = [7.0, 15.0, 12.0, 2.0, 4.5]
    expected = [(x - fmean(everything)) / (stdev(everything) + 1e-4) for x in everything]
    assert totals("sum_then_normalise", groups=None) == pytest.approx(expected)


def test_a25_groups_without_differences_give_zero() -> None:
    assert normalise([0.1] * 3 + [0.7], ["a"] * 3 + ["b"], 1e-4) == [0.0] * 4
    assert normalise([None, None], ["a", "a"], 1e-4) == [None, None]
    assert normalise([], [], 1e-4) == []


def test_agrees_with_the_formula_of_trl() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.tensor([[1.0, 3.0], [0.0, 5.0], [1.0, 2.0], [0.0, 2.5]])
    per_function = (scores - scores.mean(0)) / (scores.std(0) + 1e-4)
    columns = [[Score(v) for v in column] for column in scores.T.tolist()]
    rewards = RewardSet([resolve(one), resolve(two)], (1.0, 0.3), "normalise_then_sum").combine(columns)
    assert [r.total for r in rewards] == pytest.approx((per_function @ torch.tensor([1.0, 0.3])).tolist(), abs=1e-5)


@pytest.mark.parametrize("status", ["timed_out", "error"])
@pytest.mark.parametrize("aggregation", ["sum", "normalise_then_sum", "sum_then_normalise"])
def test_a_sample_whose_checker_failed_is_dropped(status, aggregation) -> None:
    failed = Score(None, Outcome(status))
    rewards = RewardSet([resolve(one), resolve(two)], None, aggregation)
    combined = rewards.combine([[Score(1.0), Score(0.0), failed], [Score(0.0), Score(0.0), Score(100.0)]])
    assert combined[2].total is None and combined[2].scores["two"].value == 100.0
    without = rewards.combine([[Score(1.0), Score(0.0)], [Score(0.0), Score(0.0)]])
    assert [c.total for c in combined[:2]] == [c.total for c in without]


def test_a_metric_that_fails_drops_nothing_and_not_applying_is_no_failure() -> None:
    rewards = RewardSet([resolve(one), resolve(two)], (1.0, 0.0))
    assert rewards.combine([[Score(1.0)], [Score(None, Outcome("error"))]])[0].total == 1.0
    both = RewardSet([resolve(one), resolve(two)])
    assert both.combine([[Score(1.0)], [Score(None, Outcome("bad_gold"))]])[0].total == 1.0


def test_mistakes_are_named() -> None:
    functions = [resolve(one), resolve(two)]
    with pytest.raises(UserError, match="unknown aggregation 'mean'.*sum_then_normalise"):
        RewardSet(functions, None, "mean")
    with pytest.raises(UserError, match="finite"):
        RewardSet(functions, [1.0, float("nan")])
    with pytest.raises(UserError, match="eps"):
        RewardSet(functions, eps=0)
    with pytest.raises(ValueError, match="1 columns"):
        RewardSet(functions).combine([[Score(1.0)]])
    with pytest.raises(ValueError, match="groups"):
        RewardSet(functions).combine([[Score(1.0)], [Score(1.0)]], ["a", "b"])
