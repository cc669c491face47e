"""pass@k, maj@k, 95 % intervals, and a paired test of two models. Plain Python; shares lie in [0, 1].

How ties count in maj@k: `majority_at_k`. How answers are told apart and figures put together: `rlvr/evaluation/summary.py`.
"""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

Z_95 = 1.959964  # the normal distribution's 97.5 % point
SIGN_FLIPS = 20_000


def pass_at_k(samples: int, right: int, k: int) -> float:
    """The chance that at least one of `k` answers, drawn from `samples` of which `right` are right, is right.

    Unbiased for the chance among k fresh answers: 1 - C(n - c, k) / C(n, k), in exact arithmetic.
    Source: Chen et al., "Evaluating Large Language Models Trained on Code", arXiv:2107.03374, eq. 1.

    Raises:
        ValueError: `k` is not within 1..samples, or `right` not within 0..samples.

    >>> pass_at_k(4, 1, 2)
    0.5
    """
    if not 1 <= k <= samples or not 0 <= right <= samples:
        raise ValueError(f"pass@{k} of {right} right ones among {samples}")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def signal_at_k(samples: int, right: int, k: int) -> float:
    """The chance that `k` answers, drawn from `samples` of which `right` are right, are neither all right nor all wrong: that a
    group of k teaches an estimator that compares within groups. Unbiased, as `pass_at_k` is.

    Raises:
        ValueError: `k` is not within 1..samples, or `right` not within 0..samples.

    >>> signal_at_k(4, 2, 2)  # of 6 pairs, 1 is all right and 1 all wrong
    0.6666666666666667
    """
    return pass_at_k(samples, right, k) - math.comb(right, k) / math.comb(samples, k)


def majority_at_k(votes: Sequence[int | None], right: Sequence[bool], k: int) -> float:
    """The chance that the commonest of `k` answers is right (Wang et al., "Self-Consistency", arXiv:2203.11171).

    Args:
        votes: which answer each sample gave: equal numbers for equal answers, None for no answer, which is no vote.
        right: whether it is right.
        k: samples that vote together. The mean is over consecutive blocks of k; what is left over is not used.

    Ties: the winner is drawn by lot among the commonest answers. Returned is the expectation, so a right answer that ties
    with one wrong one counts a half. Where no sample gave an answer, the vote is wrong.

    Raises:
        ValueError: `k` is not within 1..len(votes).
    """
    if not 1 <= k <= len(votes):
        raise ValueError(f"maj@{k} of {len(votes)} answers")
    starts = range(0, len(votes) - k + 1, k)
    return fmean(_majority(votes[i : i + k], right[i : i + k]) for i in starts)


def _majority(votes: Sequence[int | None], right: Sequence[bool]) -> float:
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return 0.0
    most = max(counts.values())
    winners = {vote for vote, count in counts.items() if count == most}
    good = {vote for vote, is_right in zip(votes, right, strict=True) if is_right}
    return len(winners & good) / len(winners)


def wilson_interval(right: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of which `right` out of `count` was seen (Wilson 1927, J. Am. Stat. Assoc. 22, 209).

    >>> [round(x, 3) for x in wilson_interval(8, 10)]
    [0.49, 0.943]
    """
    share, z2 = right / count, Z_95**2
    middle = share + z2 / (2 * count)
    half = Z_95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2))
    return max(0.0, (middle - half) / (1 + z2 / count)), min(1.0, (middle + half) / (1 + z2 / count))


def mean_interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the mean over problems, each with its share of right answers.

    Problems are the units that were drawn, so that further answers to the same ones don't narrow it as further problems
    would (Miller, "Adding Error Bars to Evals", arXiv:2411.00640). Shares of 0 and 1 only, and shares that are all alike,
    get Wilson's interval, which knows that few draws may look alike.
    """
    mean = fmean(values)
    if set(values) <= {0.0, 1.0} or len(set(values)) == 1:
        return wilson_interval(mean * len(values), len(values))
    half = Z_95 * stdev(values) / math.sqrt(len(values))
    return max(0.0, mean - half), min(1.0, mean + half)


@dataclass(frozen=True)
class Comparison:
    """Two models on the same problems.

    Attributes:
        problems: how many they have in common.
        difference: mean of the second's share of right answers less the first's.
        interval: its 95 % interval, over pairs.
        p_value: how likely a difference at least this large is if neither is better.
        test: which test gave it.
        gained, lost: problems on which the second is better, and worse.
    """

    problems: int
    difference: float
    interval: tuple[float, float]
    p_value: float
    test: str
    gained: int
    lost: int


def compare(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compare two models by their shares of right answers to the same problems, pair by pair.

    One answer each: the exact McNemar test, a binomial test of the problems on which they differ (McNemar 1947,
    Psychometrika 12, 153). Several: a test by random flips of the differences' signs, with a fixed seed.

    Raises:
        ValueError: no problems, or not equally many.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"can't pair {len(first)} problems with {len(second)}")
    differences = [b - a for a, b in zip(first, second, strict=True)]
    mean = fmean(differences)
    half = Z_95 * stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else 1.0
    gained, lost = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    if set(differences) <= {-1.0, 0.0, 1.0}:
        p_value, test = _binomial_p(gained, lost), "exact McNemar"
    else:
        p_value, test = _sign_flip_p(differences), f"{SIGN_FLIPS:,} sign flips"
    interval = max(-1.0, mean - half), min(1.0, mean + half)
    return Comparison(len(differences), mean, interval, p_value, test, gained, lost)


def _binomial_p(gained: int, lost: int) -> float:
    """Two-sided, of `gained` out of those that differ, at even odds."""
    count, fewer = gained + lost, min(gained, lost)
    tail = sum(math.comb(count, i) for i in range(fewer + 1))
    return min(1.0, 2 * tail / 2**count)


def _sign_flip_p(differences: Sequence[float]) -> float:
    """Share of flips whose sum is at least as large; the seen one counts, so that it is never 0."""
    sizes, seen = [abs(d) for d in differences if d], abs(sum(differences))
    draw = random.Random("sign flips")
    as_large = 1
    for _ in range(SIGN_FLIPS):
        bits = draw.getrandbits(len(sizes)) if sizes else 0
        total = sum(size if bits >> i & 1 else -size for i, size in enumerate(sizes))
        as_large += abs(total) >= seen - 1e-12
    return as_large / (SIGN_FLIPS + 1)


# Runs over seeds.

BOOTSTRAPS = 2_000
_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""97.5 % points of Student's distribution, by degrees of freedom from 1."""


def interquartile_mean(values: Sequence[float]) -> float:
    """The mean of the middle half: without the quarter of least and the quarter of greatest values, rounded down.

    Source: Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", arXiv:2108.13264, sec. 4.3.

    >>> interquartile_mean([0.0, 4.0, 5.0, 6.0, 100.0])
    5.0
    """
    cut = len(values) // 4
    return fmean(sorted(values)[cut : len(values) - cut])


def bootstrap_interval(strata: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The 95 % interval of the interquartile mean of all values, by resampling with replacement within each stratum.

    Strata are tasks, values are runs (Agarwal et al., arXiv:2108.13264, sec. 4.2). The random numbers are the same each time. Of few
    runs it is too narrow: of 5, the interval of a mean covers it about 85 times in 100.

    Raises:
        ValueError: an empty stratum.
    """
    if not strata or not all(strata):
        raise ValueError("every stratum needs a value")
    draw = random.Random("bootstrap")
    found = sorted(
        interquartile_mean([value for values in strata for value in draw.choices(values, k=len(values))])
        for _ in range(BOOTSTRAPS)
    )
    tail = round(0.025 * (BOOTSTRAPS - 1))
    return found[tail], found[-1 - tail]


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval: t(n - 1) s / sqrt(n) (Student 1908); infinite for one value.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("the mean of no values")
    if len(values) == 1:
        return values[0], math.inf
    return fmean(values), _t_975(len(values) - 1) * stdev(values) / math.sqrt(len(values))


def _t_975(degrees: int) -> float:
    """From 16 degrees on by Abramowitz and Stegun 26.7.5, right to four digits there."""
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z, n = Z_95, degrees
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    return z + (z**3 + z) / (4 * n) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2) + third
