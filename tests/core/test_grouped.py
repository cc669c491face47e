"""Estimators that compare the responses to one prompt, against plain Python; and whether there is anything to compare."""

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.core.advantages import AdvantageInputs, get_estimator, has_signal, score_norms
from rlvr.core.logprobs import selected_logprobs

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


@settings(deadline=None, max_examples=200)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.lists(st.tuples(reward, st.booleans()), max_size=5)),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 10**6),
)
def test_each_token_is_compared_with_those_of_its_place_weighted_by_their_score_norms_so_far(
    rows: list[Row], seed: int, pad: Callable, pad_mask: Callable
) -> None:
    """In any order, with responses that have no score, foreign tokens anywhere and rubbish where they are."""
    rows = [*rows, *rows]  # no group of one
    inputs = make_inputs(rows, pad, pad_mask)
    norms = torch.rand(inputs.mask.shape, generator=torch.Generator().manual_seed(seed))
    inputs = replace(inputs, score_norms=torch.where(inputs.mask, norms, math.nan))
    out = get_estimator("optimal_token_baseline")(inputs)

    own = [[j for j, (_, m) in enumerate(tokens) if m] for _, _, tokens in rows]  # columns of the policy's tokens

    def at(i: int, t: int) -> tuple[float, float]:
        """Reward to go, and sum of norms, of response i at its t-th own token."""
        return math.fsum(rows[i][2][j][0] for j in own[i][t:]), math.fsum(norms[i, j].item() for j in own[i][: t + 1])

    for i, (group, scored, tokens) in enumerate(rows):
        members = [k for k, row in enumerate(rows) if row[0] == group and row[1]]
        totals = [total(rows[k]) for k in members]
        want = dict.fromkeys(range(len(tokens)), 0.0)
        if scored and max(totals) > min(totals):
            for t, j in enumerate(own[i]):
                those = [at(k, t) for k in members if len(own[k]) > t]
                baseline = math.fsum(g * w for g, w in those) / math.fsum(w for _, w in those)
                want[j] = at(i, t)[0] - baseline
        got = out.advantages[i]
        assert got[: len(tokens)].tolist() == pytest.approx(list(want.values()), rel=1e-5, abs=1e-6)
        assert not got[len(tokens) :].any()


def test_optimal_token_baseline_of_the_only_response_left_is_zero() -> None:
    rewards = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]])
    inputs = AdvantageInputs(
        rewards, None, torch.tensor([[True] * 3, [True, True, False], [True, False, False]]), gamma=1.0, lam=1.0,
        groups=torch.zeros(3, dtype=torch.long), score_norms=torch.tensor([[0.2, 0.2, 0.2], [0.6, 0.1, 9.0], [0.2, 9.0, 9.0]]),
    )  # fmt: skip
    advantages = get_estimator("optimal_token_baseline")(inputs).advantages
    first, second = (0.2 * 1.0 + 0.2 * 0.5) / 1.0, 0.4 * 1.0 / (0.4 + 0.7)
    want = [[1 - first, 1 - second, 1.0], [-first, -second, 0.0], [0.5 - first, 0.0, 0.0]]
    torch.testing.assert_close(advantages, torch.tensor(want))
    sure = replace(inputs, score_norms=torch.zeros(3, 3))  # no token had an alternative
    assert torch.isfinite(get_estimator("optimal_token_baseline")(sure).advantages).all()
    with pytest.raises(ValueError, match="score_norms"):
        get_estimator("optimal_token_baseline")(replace(inputs, score_norms=None))


def test_score_norms_are_those_of_the_gradient_in_the_logits() -> None:
    logits = torch.randn(6, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    targets = torch.arange(6)
    out = selected_logprobs(logits, targets, with_squared_probs=True)
    assert out.squared_probs is not None
    (gradient,) = torch.autograd.grad(out.logprobs.sum(), logits)
    assert torch.allclose(score_norms(out.logprobs, out.squared_probs), gradient.square().sum(1))
    sure = score_norms(torch.zeros(1), torch.tensor([1.0 - 1e-7]))
    assert sure.item() == 0.0, "rounding leaves nothing negative"


class Policy:
    """All responses of up to `limit` tokens of a vocabulary of three, with probabilities in parts of 4^limit; the first word ends a
    response. Parameters are the logits of each prefix. A group in which each response stands as often as is likely is exact: means
    over it are expectations.
    """

    SHARES = ([2, 1, 1], [1, 2, 1], [1, 1, 2])

    def __init__(self, limit: int, seed: int) -> None:
        self.limit, lots = limit, torch.Generator().manual_seed(seed)
        prefixes = [p for n in range(limit) for p in product(range(3), repeat=n) if 0 not in p]
        self.number = {prefix: k for k, prefix in enumerate(prefixes)}
        picks = torch.randint(3, (len(prefixes),), generator=lots)
        self.probabilities = torch.tensor([self.SHARES[i] for i in picks]).double() / 4
        whole = [p for n in range(1, limit + 1) for p in product(range(3), repeat=n) if 0 not in p[:-1]]
        responses = [p for p in whole if p[-1] == 0 or len(p) == limit]
        scores = torch.randint(2, (len(responses),), generator=lots).double()
        self.group: list[tuple[tuple[int, ...], float]] = []
        for response, score in zip(responses, scores.tolist(), strict=True):
            share = math.prod(self.probabilities[self.number[response[:t]], y].item() for t, y in enumerate(response))
            self.group += [(response, score)] * round(share * 4**limit)

    def inputs(self) -> AdvantageInputs:
        size = (len(self.group), self.limit)
        rewards, norms, mask = torch.zeros(size), torch.zeros(size).double(), torch.zeros(size, dtype=torch.bool)
        for i, (response, score) in enumerate(self.group):
            rewards[i, len(response) - 1] = score
            for t, y in enumerate(response):
                p = self.probabilities[self.number[response[:t]]]
                norms[i, t], mask[i, t] = score_norms(p[y].log(), p.square().sum()), True
        groups = torch.zeros(len(self.group), dtype=torch.long)
        return AdvantageInputs(rewards, None, mask, gamma=1.0, lam=1.0, groups=groups, score_norms=norms)

    def variance(self, advantages: torch.Tensor) -> float:
        """Of the gradient of one response, summed over the parameters."""
        gradients = torch.zeros(len(self.group), *self.probabilities.shape).double()
        for i, (response, _) in enumerate(self.group):
            for t, y in enumerate(response):
                k = self.number[response[:t]]
                gradients[i, k] += advantages[i, t] * (torch.eye(3)[y] - self.probabilities[k])
        return float(gradients.var(dim=0, correction=0).sum())


@pytest.mark.parametrize("seed", range(12))
def test_optimal_token_baseline_is_the_best_there_is_for_one_token(seed: int) -> None:
    policy = Policy(1, seed)
    inputs = policy.inputs()
    best = get_estimator("optimal_token_baseline")(inputs).advantages
    for shift in (-0.1, -0.01, 0.01, 0.1):
        assert policy.variance(best) <= policy.variance(best + shift)
    assert policy.variance(best) <= policy.variance(get_estimator("dr_grpo")(inputs).advantages) + 1e-12


@pytest.mark.parametrize("limit", [2, 3])
def test_optimal_token_baseline_has_less_variance_than_the_mean_of_the_group(limit: int) -> None:
    """Of twelve small problems that are solved exactly, all means alike: the gradient's variance about each baseline."""
    pairs = []
    for seed in range(12):
        policy = Policy(limit, seed)
        inputs = policy.inputs()
        pairs.append(
            [policy.variance(get_estimator(n)(inputs).advantages) for n in ("optimal_token_baseline", "dr_grpo")]
        )
    assert sum(otb for otb, _ in pairs) < 0.95 * sum(mean for _, mean in pairs)
    assert sum(otb <= mean + 1e-12 for otb, mean in pairs) >= 11


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
