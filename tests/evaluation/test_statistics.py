"""The statistics against counting, simulation and scipy-free definitions."""

import itertools
import math
import random
from statistics import fmean, stdev

import pytest

from rlvr.evaluation.statistics import (
    Z_95,
    bootstrap_interval,
    compare,
    interquartile_mean,
    majority_at_k,
    mean_interval,
    pass_at_k,
    signal_at_k,
    t_interval,
    wilson_interval,
)


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
def test_pass_at_k_counts_the_subsets_that_hold_a_right_one(samples: int) -> None:
    for right in range(samples + 1):
        answers = [True] * right + [False] * (samples - right)
        for k in range(1, samples + 1):
            subsets = list(itertools.combinations(answers, k))
            assert pass_at_k(samples, right, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


@pytest.mark.parametrize("samples", [2, 5, 7])
def test_signal_at_k_counts_the_subsets_that_are_neither_all_right_nor_all_wrong(samples: int) -> None:
    for right in range(samples + 1):
        answers = [True] * right + [False] * (samples - right)
        for k in range(1, samples + 1):
            subsets = [set(subset) for subset in itertools.combinations(answers, k)]
            mixed = sum(len(subset) == 2 for subset in subsets)
            assert signal_at_k(samples, right, k) == pytest.approx(mixed / len(subsets))


def test_pass_at_k_is_unbiased_where_the_plug_in_is_not() -> None:
    """Over all outcomes of 4 draws at chance p, its mean is 1 - (1 - p)^2."""
    p, n, k = 0.3, 4, 2
    weights = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    assert sum(w * pass_at_k(n, c, k) for c, w in enumerate(weights)) == pytest.approx(1 - (1 - p) ** k)
    assert sum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(weights)) != pytest.approx(1 - (1 - p) ** k, abs=0.01)


def test_pass_at_k_of_many_samples_is_exact() -> None:
    assert pass_at_k(2000, 1, 1000) == 0.5
    for wrong in ((3, 1, 4), (3, 4, 1), (3, 1, 0)):
        with pytest.raises(ValueError, match="pass@"):
            pass_at_k(*wrong)


def test_majority_votes_by_lot_and_in_blocks() -> None:
    assert majority_at_k([0, 0, 1], [True, True, False], 3) == 1.0
    assert majority_at_k([0, 1, 1], [True, False, False], 3) == 0.0
    assert majority_at_k([0, 1], [True, False], 2) == 0.5
    assert majority_at_k([0, 1, 2], [True, False, False], 3) == pytest.approx(1 / 3)
    assert majority_at_k([0, None, None], [True, False, False], 3) == 1.0  # no answer is no vote
    assert majority_at_k([None, None], [False, False], 2) == 0.0
    assert majority_at_k([0, 0, 1, 1, 7], [True, True, False, False, False], 2) == 0.5  # two blocks, one left over
    assert majority_at_k([0, 1], [True, False], 1) == 0.5
    with pytest.raises(ValueError, match="maj@3"):
        majority_at_k([0, 1], [True, False], 3)


@pytest.mark.parametrize(("right", "count"), [(0, 10), (10, 10), (3, 7), (500, 1000), (1, 1)])
def test_wilson_bounds_are_the_shares_that_are_just_as_far_off_as_z(right: int, count: int) -> None:
    """The interval holds the shares p with |seen - p| <= z sqrt(p (1 - p) / n)."""
    for bound in wilson_interval(right, count):
        if 1e-9 < bound < 1 - 1e-9:
            assert abs(right / count - bound) == pytest.approx(Z_95 * (bound * (1 - bound) / count) ** 0.5)


def test_more_answers_to_the_same_problems_are_no_further_problems() -> None:
    assert mean_interval([0.0, 1.0, 1.0]) == wilson_interval(2, 3)
    assert mean_interval([0.5, 0.5]) == wilson_interval(1, 2)
    low, high = mean_interval([0.25, 0.5, 0.75, 0.5])
    assert (low + high) / 2 == pytest.approx(0.5) and high - low == pytest.approx(2 * Z_95 * (0.125 / 3) ** 0.5 / 2)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    draw = random.Random(0)
    chances = [draw.random() for _ in range(2000)]
    truth = fmean(chances)
    held = 0
    for _ in range(400):
        seen = [sum(draw.random() < p for _ in range(4)) / 4 for p in draw.sample(chances, 100)]
        low, high = mean_interval(seen)
        held += low <= truth <= high
    assert 0.92 <= held / 400 <= 0.985


def test_mcnemar_counts_outcomes_of_the_differing_problems() -> None:
    first, second = [0.0] * 10 + [1.0] * 5, [1.0] * 8 + [0.0] * 2 + [1.0] * 4 + [0.0]
    found = compare(first, second)
    assert (found.gained, found.lost, found.test) == (8, 1, "exact McNemar")
    outcomes = list(itertools.product([0, 1], repeat=9))
    as_extreme = sum(abs(2 * sum(o) - 9) >= 7 for o in outcomes) / len(outcomes)
    assert found.p_value == pytest.approx(as_extreme)
    assert found.difference == pytest.approx(7 / 15)


def test_sign_flips_agree_with_all_flips() -> None:
    first, second = [0.25, 0.5, 0.75, 0.0, 0.5, 0.25, 1.0, 0.5], [0.5, 1.0, 0.75, 0.5, 0.75, 0.0, 1.0, 1.0]
    found = compare(first, second)
    differences = [b - a for a, b in zip(first, second, strict=True)]
    flips = [
        sum(s * d for s, d in zip(signs, differences, strict=True)) for signs in itertools.product([1, -1], repeat=8)
    ]
    exact = sum(abs(total) >= abs(sum(differences)) - 1e-12 for total in flips) / len(flips)
    assert found.p_value == pytest.approx(exact, abs=0.01) and "sign flips" in found.test


def test_models_that_don_t_differ_are_not_told_apart() -> None:
    assert compare([1.0, 0.0], [1.0, 0.0]).p_value == 1.0
    assert compare([0.5, 0.25], [0.5, 0.25]).p_value == 1.0
    draw = random.Random(1)
    below = sum(
        compare(*[[float(draw.random() < 0.5) for _ in range(40)] for _ in range(2)]).p_value < 0.05 for _ in range(300)
    )
    assert below / 300 < 0.07
    with pytest.raises(ValueError, match="pair"):
        compare([1.0], [])


def test_the_interquartile_mean_leaves_out_a_quarter_on_each_side() -> None:
    assert interquartile_mean([9.0, 1.0, 2.0, 3.0]) == 2.5
    assert interquartile_mean([1.0, 2.0, 9.0]) == 4.0  # fewer than four: all
    assert interquartile_mean([100, 1, 2, 3, 4, 5, 6, -50]) == pytest.approx((2 + 3 + 4 + 5) / 4)


def test_the_bootstrap_resamples_within_strata_and_covers_about_as_often_as_it_says() -> None:
    assert bootstrap_interval([[0.0, 0.0], [1.0, 1.0]]) == (0.5, 0.5)  # over both together it would be (0, 1)
    draw = random.Random(0)
    hits = 0
    for _ in range(60):
        low, high = bootstrap_interval([[draw.gauss(0, 1) for _ in range(40)]])
        hits += low <= 0 <= high
    assert 50 <= hits <= 60
    with pytest.raises(ValueError, match="stratum"):
        bootstrap_interval([[1.0], []])


def test_the_t_interval_is_students() -> None:
    """2, 4, 6: s = 2, t(2) = 4.303. Many: scipy.stats.t.ppf(0.975, 16) = 2.1199, of 40 degrees 2.0211."""
    mean, half = t_interval([2.0, 4.0, 6.0])
    assert mean == 4.0 and half == pytest.approx(4.303 * 2 / math.sqrt(3))
    assert t_interval([5.0]) == (5.0, math.inf)
    for degrees, point in ((16, 2.1199), (40, 2.0211)):
        values = [float(i % 2) for i in range(degrees + 1)]
        assert t_interval(values)[1] == pytest.approx(point * stdev(values) / math.sqrt(degrees + 1), rel=1e-4)
    with pytest.raises(ValueError, match="no values"):
        t_interval([])
