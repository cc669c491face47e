"""The queue that generation ahead is: where its outcome is plain, and beside the runs that were measured."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.asynchronous import OFF, RUNS, WORKS, foretold_s
from benchmarks.pipeline import Lengths, Pipeline, episode_seconds

EQUAL = Pipeline(Lengths(8, 0.0, 8), 16, 4, 2, lambda before, new: float(new.max()), update_s=5.0)
TAIL = replace(EQUAL, lengths=Lengths(16, 1.0, 128), responses=64, rows=8)


def steady(p: Pipeline) -> float:
    return float(np.mean(episode_seconds(p, 200)[10:-10]))


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, 16 + 5),  # 4 requests of 8 s, 2 workers; then the update
        ({"staleness": 1}, 16),  # as slow as the slower of the two
        ({"staleness": 1, "update_s": 30.0}, 30),
        ({"workers": 1, "staleness": 2}, 32),
        ({"workers": 8, "staleness": 1}, (8 + 5) / 2),  # a request and an update, with two episodes under way
        ({"workers": 4, "staleness": 1, "update_s": 4.0}, 8),  # the workers' time
        ({"workers": 16, "staleness": 2, "update_s": 4.0}, 4),  # the update's
        ({"publish_s": 1.0, "take_s": 2.0}, 1 + 2 + 16 + 5),
        ({"partial_tokens": 4}, 16 + 5),  # nothing is ahead, and all weights are those of the episode
        ({"staleness": 2, "partial_tokens": 4}, 16),  # in two parts, as long together
        ({"staleness": 2, "partial_tokens": 4, "workers": 16, "update_s": 3.0}, (8 + 3) / 3),
    ],
)
def test_where_it_is_plain(changes, seconds: float) -> None:
    assert steady(replace(EQUAL, **changes)) == pytest.approx(seconds, rel=0.02)


def test_rest_of_long_responses_in_full_requests_takes_less() -> None:
    whole, parts = (steady(replace(TAIL, staleness=4, partial_tokens=n)) for n in (0, 32))
    assert parts < 0.75 * whole
    fewer = [steady(replace(TAIL, staleness=4, partial_tokens=n)) for n in (64, 32, 16)]
    assert all(one > other for one, other in pairwise(fewer))


def test_lengths_are_those_of_the_law_however_they_are_cut() -> None:
    law = Lengths(16, 1.0, 128)
    whole = law.draw(20_000, 0, 1)
    assert np.median(whole) == pytest.approx(16, abs=1) and whole.max() == 128 and whole.min() >= 1
    assert (whole > 32).mean() == pytest.approx(0.244, abs=0.01)  # P(N(0, 1) > ln 2)
    longer = law.draw(20_000, 32, 2)
    assert longer.min() == 33
    assert (longer > 64).mean() == pytest.approx((whole > 64).sum() / (whole > 32).sum(), abs=0.02)


def test_it_foretells_the_runs_that_were_measured() -> None:
    """Those of `benchmarks.asynchronous`, given what an episode without overlap does beside generation and update."""
    measured = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "asynchronous.json").read_text())
    for kind, runs in RUNS.items():
        rows = {(row["max_staleness"], row["partial_rollout_tokens"]): row["episode_s"] for row in measured[kind]}
        assert list(rows) == list(runs)
        rest_s = rows[0, 0] - foretold_s(WORKS[kind], 0, 0)
        for run, seconds in rows.items():
            assert foretold_s(WORKS[kind], *run, rest_s) == pytest.approx(seconds, rel=OFF)
