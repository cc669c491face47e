"""Estimators that compare the responses to one prompt, against plain Python; and whether there is anything to compare."""

import math
import statistics
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.core.advantages import AdvantageInputs, get_estimator, has_signal

Row = tuple[int, bool, list[tuple[float, bool]]]
"""A response: its group, whether it has a score, and its tokens (reward, does it count)."""


def grpo(mine: float, all_of_group: Sequence[float]) -> float:
    return (mine - statistics.fmean(all_of_group)) / (statistics.stdev(all_of_group) + 1e-4)


def dr_grpo(mine: float, all_of_group: Sequence[float]) -> float:
    return mine - statistics.fmean(all_of_group)


def rloo(mine: float, all_of_group: Sequence[float]) -> float:
    others = list(all_of_group)
    others.remove(mine)
    return mine - statistics.fmean(others)


ORACLES = {"grpo": grpo, "dr_grpo": dr_grpo, "rloo": rloo, "reinforce_pp_baseline": dr_grpo}

reward = st.one_of(st.sampled_from([0.0, 0.1, 1.0]), st.floats(-3, 3))
token = st.tuples(reward, st.booleans())
response = st.tuples(st.integers(0, 3), st.booleans(), st.lists(token, max_size=5))


def make_inputs(rows: Sequence[Row], pad: Callable, pad_mask: Callable) -> AdvantageInputs:
    mask = pad_mask([[m for _, m in tokens] for _, _, tokens in rows], 1)
    rewards = pad([[r for r, _ in tokens] for _, _, tokens in rows], extra=1)
    return AdvantageInputs(
        rewards=torch.where(mask, rewards, math.nan),
        values=None,
        mask=mask,
        gamma=1.0,
        lam=1.0,
        groups=torch.tensor([group for group, _, _ in rows]),
        scored=torch.tensor([scored for _, scored, _ in rows]),
    )


def total(row: Row) -> float:
    return math.fsum(r for r, m in row[2] if m)


@settings(deadline=None, max_examples=200)
@given(rows=st.lists(response, min_size=1, max_size=8), name=st.sampled_from(sorted(ORACLES)))
def test_a28_a25_each_response_is_compared_with_the_scored_ones_of_its_group(
    rows: list[Row], name: str, pad: Callable, pad_mask: Callable
) -> None:
    """In any order, with responses that have no score, tokens masked anywhere and rubbish in the padding."""
    rows = [*rows, *rows]  # no group of one
    out = get_estimator(name)(make_inputs(rows, pad, pad_mask))
    assert out.returns is None
    for row, got in zip(rows, out.advantages, strict=True):
        group = [total(r) for r in rows if r[0] == row[0] and r[1]]
        want = 0.0
        if row[1] and len(group) > 1 and max(group) > min(group):
            want = ORACLES[name](total(row), group)
        expected = [want if m else 0.0 for _, m in row[2]]
        assert got[: len(expected)].tolist() == pytest.approx(expected, rel=1e-6, abs=1e-9)
        assert not got[len(expected) :].any()


def test_opo_weighs_the_baseline_by_length(pad: Callable, pad_mask: Callable) -> None:
    rows: list[Row] = [
        (0, True, [(0.0, True)] * 2 + [(1.0, True)]),
        (0, True, [(0.5, True)]),
        (0, False, [(9.0, True)]),
    ]
    out = get_estimator("opo")(make_inputs(rows, pad, pad_mask))
    baseline = (3 * 1.0 + 1 * 0.5) / 4
    assert out.advantages[0, :3].tolist() == pytest.approx([1.0 - baseline] * 3)
    assert out.advantages[1, 0].item() == pytest.approx(0.5 - baseline)
    assert not out.advantages[2].any()


def single_token(
    scores: Sequence[float], groups: Sequence[int], scored: Sequence[bool] | None = None
) -> AdvantageInputs:
    rewards = torch.tensor(scores, dtype=torch.float32)[:, None]
    return AdvantageInputs(
        rewards,
        None,
        torch.ones_like(rewards, dtype=torch.bool),
        gamma=1.0,
        lam=1.0,
        groups=torch.tensor(groups),
        scored=None if scored is None else torch.tensor(scored),
    )


@pytest.mark.parametrize("name", [*ORACLES, "opo"])
@pytest.mark.parametrize("score", [0.0, 0.1, 1 / 3, -1e6, 1e-30])
def test_a25_a_group_of_equal_returns_gives_exactly_zero(name: str, score: float) -> None:
    out = get_estimator(name)(single_token([score] * 7 + [0.0, 1.0], [5] * 7 + [2] * 2))
    assert (out.advantages[:7] == 0).all()
    assert out.advantages[7:].any(), "the other group has signal"


@pytest.mark.parametrize("name", ORACLES)
def test_a25_one_score_or_none_in_a_group_gives_zero(name: str) -> None:
    out = get_estimator(name)(single_token([1.0, 0.5, 0.3, 0.2], [0, 0, 1, 1], [True, False, False, False]))
    assert (out.advantages == 0).all()


@pytest.mark.parametrize("name", [*ORACLES, "opo"])
def test_a_group_of_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="at least two"):
        get_estimator(name)(single_token([1.0, 0.0, 1.0], [0, 0, 1]))
    with pytest.raises(ValueError, match="needs groups"):
        get_estimator(name)(AdvantageInputs(torch.ones(2, 1), None, torch.ones(2, 1), gamma=1.0, lam=1.0))


def test_remax_subtracts_the_greedy_score() -> None:
    base = single_token([1.0, 0.1, 0.7], [0, 0, 1], [True, True, False])
    inputs = AdvantageInputs(**{**vars(base), "greedy_scores": torch.tensor([0.4, 0.4, 0.0])})
    assert get_estimator("remax")(inputs).advantages[:, 0].tolist() == pytest.approx([0.6, -0.3, 0.0])
    with pytest.raises(ValueError, match="greedy_scores"):
        get_estimator("remax")(base)


@pytest.mark.parametrize(
    ("scores", "scored", "signal"),
    [
        ([0.0, 0.0, 0.0], [True] * 3, False),
        ([1.0, 1.0, 1.0], [True] * 3, False),
        ([0.7, 0.7, 0.7], [True] * 3, False),  # neither 0 nor 1, and yet nothing to learn from
        ([1.4, 1.5, 1.6], [True] * 3, True),  # a mean beyond 1 is no reason to drop
        ([-2.0, -2.0, -1.0], [True] * 3, True),
        ([0.1 + 0.2, 0.3, 0.3], [True] * 3, False),  # rounding is no signal
        ([0.5, 0.5001, 0.5], [True] * 3, True),
        ([1.0, 0.0, 0.0], [True, False, False], False),
        ([1.0, 0.0, 1.0], [True, True, False], True),
        ([1.0, 0.0, 1.0], [False] * 3, False),
    ],
)
def test_signal_is_a_difference_between_scores_of_any_kind(
    scores: list[float], scored: list[bool], signal: bool
) -> None:
    """Beside another group, in turns, that is always of the other kind."""
    other = [0.0, 1.0, 1.0] if not signal else [1.0, 1.0, 1.0]
    mixed = torch.tensor([x for pair in zip(scores, other, strict=True) for x in pair], dtype=torch.float64)
    flags = torch.tensor([x for s in scored for x in (s, True)])
    got = has_signal(mixed, flags, torch.tensor([4, 1] * 3))
    assert got.tolist() == [signal, not signal] * 3
