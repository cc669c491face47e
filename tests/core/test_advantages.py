"""Generalized advantage estimation and the registry of estimators."""

import math
import random
from collections.abc import Callable

import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.core import advantages as module
from rlvr.core.advantages import AdvantageInputs, AdvantageOutputs, estimator, gae, get_estimator, plain_returns

# Per sample: its bootstrap value, and tokens (reward, value, does it count).
token = st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.booleans())
samples = st.tuples(st.floats(-2, 2), st.lists(token, max_size=7))
Batch = list[tuple[float, list[tuple[float, float, bool]]]]
unit = st.sampled_from([0.0, 0.5, 0.95, 1.0])


@settings(deadline=None, max_examples=150)
@given(
    batch=st.lists(samples, min_size=1, max_size=5), gamma=unit, lam=unit, cut=st.booleans(), extra=st.integers(0, 2)
)
def test_a11_a12_gae_equals_quadratic_reference(
    batch: Batch, gamma: float, lam: float, cut: bool, extra: int, pad: Callable, pad_mask: Callable
) -> None:
    """With tokens masked anywhere, any padding with rubbish in it, and with and without a value after the end."""
    rewards = [[r for r, _, _ in row] for _, row in batch]
    values = [[v for _, v, _ in row] for _, row in batch]
    masks = [[m for _, _, m in row] for _, row in batch]
    after = [b if cut else 0.0 for b, _ in batch]
    mask = pad_mask(masks, extra)
    inputs = AdvantageInputs(
        rewards=torch.where(mask, pad(rewards, extra=extra), math.nan),
        values=torch.where(mask, pad(values, extra=extra), math.inf),
        mask=mask,
        gamma=gamma,
        lam=lam,
        bootstrap=torch.tensor(after, dtype=torch.float64) if cut else None,
    )
    out = gae(inputs)
    rows = zip(rewards, values, masks, after, strict=True)
    expected = pad([reference.gae(r, v, m, gamma, lam, b) for r, v, m, b in rows], 0.0, extra)
    assert torch.allclose(out.advantages, expected, atol=1e-9)
    returns = torch.where(mask, expected + pad(values, extra=extra), 0.0)
    assert torch.allclose(out.returns, returns, atol=1e-9)


def test_a11_masked_tokens_inside_a_response_are_as_if_absent() -> None:
    rewards, values = torch.tensor([[0.1, 0.2, 1.0]]), torch.tensor([[0.5, 0.3, 0.7]])
    plain = gae(AdvantageInputs(rewards, values, torch.ones(1, 3), gamma=0.9, lam=0.8))
    spread = torch.tensor([[1, 0, 0, 1, 1, 0]])
    wide_rewards, wide_values = (torch.full((1, 6), 7.0).masked_scatter(spread.bool(), x) for x in (rewards, values))
    out = gae(AdvantageInputs(wide_rewards, wide_values, spread, gamma=0.9, lam=0.8))
    assert torch.equal(out.advantages[spread.bool()], plain.advantages[0])
    assert torch.equal(out.returns[spread.bool()], plain.returns[0])
    assert not out.advantages[~spread.bool()].any() and not out.returns[~spread.bool()].any()


@settings(deadline=None, max_examples=60)
@given(batch=st.lists(samples, min_size=1, max_size=5), critic_lam=unit, alpha=st.sampled_from([None, 0.3, 1.0]))
def test_a11_lambdas_of_the_critic_and_by_length_equal_the_reference(
    batch: Batch, critic_lam: float, alpha: float | None, pad: Callable, pad_mask: Callable
) -> None:
    """VAPO: the critic's targets by a lambda of their own, the policy's lambda by the response's length."""
    columns = [([r for r, _, _ in row], [v for _, v, _ in row], [m for _, _, m in row]) for _, row in batch]
    mask = pad_mask([m for _, _, m in columns], 1)
    inputs = AdvantageInputs(
        *(torch.where(mask, pad([c[i] for c in columns], extra=1), math.nan) for i in (0, 1)),
        mask,
        gamma=0.9,
        lam=0.7,
        critic_lam=critic_lam,
        lam_alpha=alpha,
    )
    out = gae(inputs)
    lams = [0.7 if alpha is None else max(0.0, 1 - 1 / (alpha * max(1, sum(m)))) for _, _, m in columns]
    policy = [reference.gae(*c, 0.9, lam) for c, lam in zip(columns, lams, strict=True)]
    critic = [reference.gae(*c, 0.9, critic_lam) for c in columns]
    assert torch.allclose(out.advantages, pad(policy, 0.0, 1), atol=1e-9)
    returns = torch.where(mask, pad(critic, 0.0, 1) + torch.where(mask, inputs.values, 0.0), 0.0)
    assert torch.allclose(out.returns, returns, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(
    batch=st.lists(samples, min_size=1, max_size=5),
    gamma=unit,
    lam=unit,
    alpha=st.sampled_from([None, 1.0]),
    seed=st.integers(0, 9),
)
def test_a11_discounts_by_turn_equal_the_reference(
    batch: Batch, gamma: float, lam: float, alpha: float | None, seed: int, pad: Callable, pad_mask: Callable
) -> None:
    """Gamma and lambda where turns end, wherever that is, with a value after the end."""
    rng = random.Random(seed)
    columns = [([r for r, _, _ in row], [v for _, v, _ in row], [m for _, _, m in row]) for _, row in batch]
    ends = [[rng.random() < 0.4 for _ in row] for _, row in batch]
    after = [b for b, _ in batch]
    mask = pad_mask([m for _, _, m in columns], 1)
    inputs = AdvantageInputs(
        *(torch.where(mask, pad([c[i] for c in columns], extra=1), math.nan) for i in (0, 1)),
        mask,
        gamma=gamma,
        lam=lam,
        lam_alpha=alpha,
        bootstrap=torch.tensor(after, dtype=torch.float64),
        turn_ends=pad_mask(ends, 1),
    )
    steps = [sum(m and e for m, e in zip(c[2], turn, strict=True)) for c, turn in zip(columns, ends, strict=True)]
    lams = [lam if alpha is None else max(0.0, 1 - 1 / (alpha * max(1, count))) for count in steps]
    rows = zip(columns, lams, after, ends, strict=True)
    expected = pad([reference.gae(*c, gamma, own, b, e) for c, own, b, e in rows], 0.0, 1)
    assert torch.allclose(gae(inputs).advantages, expected, atol=1e-9)
    zeros = [[0.0] * len(c[0]) for c in columns]
    returns = pad(
        [
            reference.gae(c[0], z, c[2], gamma, 1.0, b, e)
            for c, z, b, e in zip(columns, zeros, after, ends, strict=True)
        ],
        0.0,
        1,
    )
    assert torch.allclose(plain_returns(inputs), returns, atol=1e-9)


@settings(deadline=None, max_examples=60)
@given(batch=st.lists(samples, min_size=1, max_size=5), gamma=unit)
def test_reinforce_pp_is_the_reward_to_go(batch: Batch, gamma: float, pad: Callable, pad_mask: Callable) -> None:
    rewards, masks = ([[t[i] for t in row] for _, row in batch] for i in (0, 2))
    mask = pad_mask(masks, 1)
    out = get_estimator("reinforce_pp")(
        AdvantageInputs(torch.where(mask, pad(rewards, extra=1), math.nan), None, mask, gamma=gamma, lam=0.3)
    )
    want = []
    for row, flags in zip(rewards, masks, strict=True):
        places = [t for t, m in enumerate(flags) if m]
        to_go = {t: sum(gamma ** (j - i) * row[places[j]] for j in range(i, len(places))) for i, t in enumerate(places)}
        want.append([to_go.get(t, 0.0) for t in range(len(row))])
    assert torch.allclose(out.advantages, pad(want, 0.0, 1), atol=1e-9) and out.returns is None


def test_a12_a_cut_response_can_end_in_its_next_value_instead_of_nothing() -> None:
    """One token, reward 0: terminal says that nothing follows, bootstrap that V(s_T) does."""
    rewards, values, mask = torch.zeros(2, 1), torch.full((2, 1), 0.25), torch.ones(2, 1)
    bootstrap = torch.tensor([0.0, 2.0])  # The first response ended, the second was cut.
    out = gae(AdvantageInputs(rewards, values, mask, gamma=0.5, lam=0.9, bootstrap=bootstrap))
    assert out.advantages.tolist() == [[-0.25], [0.5 * 2.0 - 0.25]]
    assert out.returns.tolist() == [[0.0], [1.0]]


def test_a13_returns_are_advantages_plus_values_unwhitened() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(4, 6, generator=generator), torch.randn(4, 6, generator=generator)
    out = gae(AdvantageInputs(rewards, values, torch.ones(4, 6), gamma=1.0, lam=1.0))
    to_go = rewards.flip(1).cumsum(1).flip(1)
    assert torch.allclose(out.returns, to_go, atol=1e-5), "with gamma = lambda = 1 returns are the rewards to go"
    assert torch.allclose(out.advantages, to_go - values, atol=1e-5)


def test_a25_nothing_to_estimate_gives_zeros() -> None:
    for shape in ((2, 3), (0, 3), (2, 0)):
        rubbish = torch.full(shape, math.nan)
        out = gae(AdvantageInputs(rubbish, rubbish, torch.zeros(shape), gamma=1.0, lam=0.95))
        assert out.advantages.shape == out.returns.shape == shape
        assert not out.advantages.any() and not out.returns.any()


def test_outputs_are_float32_and_without_gradient() -> None:
    values = torch.zeros(1, 2, dtype=torch.bfloat16, requires_grad=True)
    out = gae(AdvantageInputs(torch.ones(1, 2, dtype=torch.bfloat16), values, torch.ones(1, 2), gamma=1.0, lam=1.0))
    assert out.advantages.dtype == out.returns.dtype == torch.float32
    assert not out.advantages.requires_grad and not out.returns.requires_grad


def test_gae_without_values_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match="needs values"):
        gae(AdvantageInputs(torch.zeros(1, 1), None, torch.ones(1, 1), gamma=1.0, lam=1.0))


def test_registry_finds_refuses_and_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ESTIMATORS", dict(module._ESTIMATORS))

    @estimator("rewards_only")
    def rewards_only(inputs: AdvantageInputs) -> AdvantageOutputs:
        return AdvantageOutputs(inputs.rewards, inputs.rewards)

    assert get_estimator("gae").function is gae
    assert get_estimator("rewards_only").function is rewards_only
    with pytest.raises(ValueError, match="'gea'; there are: dr_grpo, gae, .*rewards_only.*Did you mean 'gae'"):
        get_estimator("gea")
    with pytest.raises(ValueError, match="already"):
        estimator("gae")(rewards_only)
