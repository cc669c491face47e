"""All functions together, from rollouts to losses, against the oracle: random lengths, padding, masks and splits."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from reference import ReferenceSample, Rollout, make_experience, reference_step
from torch import Tensor

from rlvr.core.advantages import AdvantageInputs, gae
from rlvr.core.kl import KLKind, kl_estimate, token_rewards
from rlvr.core.losses import LossMode, StepSize, aggregate, clipped_policy_loss, clipped_value_loss
from rlvr.core.masked import masked_mean, whiten


def random_rollouts(rng: random.Random, samples: int) -> list[Rollout]:
    rollouts = []
    for _ in range(samples):
        n = rng.randint(0, 7)

        def row(low: float, high: float, n: int = n) -> list[float]:
            return [rng.uniform(low, high) for _ in range(n)]

        mask = [rng.random() < 0.8 for _ in range(n)]
        cut = rng.choice([0.0, rng.uniform(-1, 1)])
        rollouts.append(Rollout(row(-3, 0), row(-3, 0), row(-1, 1), rng.choice([0.0, 0.1, 1.0]), mask, cut))
    return rollouts


def experience(rollouts: list[Rollout], kind: KLKind, pad: Callable, pad_mask: Callable) -> dict[str, Tensor]:
    """The tensors that `make_experience` of the oracle gives as lists."""
    mask = pad_mask([r.flags for r in rollouts], 1)
    columns = {name: pad([getattr(r, name) for r in rollouts], extra=1) for name in ("logprobs", "values")}
    kl = kl_estimate(columns["logprobs"], pad([r.ref_logprobs for r in rollouts], extra=1), kind)
    scores = torch.tensor([r.score for r in rollouts], dtype=torch.float64)
    rewards, _ = token_rewards(scores, kl, mask, kl_coef=0.1)
    bootstrap = torch.tensor([r.bootstrap for r in rollouts], dtype=torch.float64)
    out = gae(AdvantageInputs(rewards, columns["values"], mask, gamma=0.98, lam=0.9, bootstrap=bootstrap))
    return columns | {"mask": mask, "rewards": rewards, "returns": out.returns, "advantages": out.advantages}


@pytest.mark.parametrize("seed", range(20))
def test_a10_a11_a13_a18_a19_a20_step_equals_the_oracle(seed: int, pad: Callable, pad_mask: Callable) -> None:
    rng = random.Random(seed)
    kind: KLKind = rng.choice(["k1", "k2", "k3"])
    mode: LossMode = rng.choice(["token_mean", "sequence_mean", "constant"])
    clip: dict[str, Any] = {
        "clip_range": 0.2,
        "clip_range_high": rng.choice([None, 0.3]),
        "dual_clip": rng.choice([None, 2.0]),
    }
    value_clip = rng.choice([None, 0.2])
    rollouts = random_rollouts(rng, samples=9)

    samples = make_experience(rollouts, kl_coef=0.1, gamma=0.98, lam=0.9, kl_kind=kind)
    tensors = experience(rollouts, kind, pad, pad_mask)
    tensors["advantages"] = whiten(tensors["advantages"], tensors["mask"])
    for name in ("rewards", "advantages", "returns"):
        assert torch.allclose(tensors[name], pad([getattr(s, name) for s in samples], 0.0, 1), atol=1e-9)

    new_logprobs = [[x + rng.gauss(0, 0.4) for x in s.logprobs] for s in samples]
    new_values = [[x + rng.gauss(0, 0.4) for x in s.values] for s in samples]
    triples: list[tuple[ReferenceSample, list[float], list[float]]] = list(
        zip(samples, new_logprobs, new_values, strict=True)
    )
    step = reference_step(triples, value_clip=value_clip, mode=mode, constant_tokens=8, **clip)

    order = rng.sample(range(9), 9)
    cuts = sorted(rng.sample(range(1, 9), 3))
    micro_batches = [order[a:b] for a, b in zip([0, *cuts], [*cuts, 9], strict=True)]
    size = StepSize.from_mask(tensors["mask"])
    policy = value = 0.0
    for rows in micro_batches:
        part = {name: tensor[rows] for name, tensor in tensors.items()}
        new = pad(new_logprobs, math.nan, 1)[rows], pad(new_values, math.inf, 1)[rows]
        policy_loss = clipped_policy_loss(new[0], part["logprobs"], part["advantages"], **clip)
        value_loss = clipped_value_loss(new[1], part["values"], part["returns"], value_clip=value_clip)
        policy += aggregate(policy_loss.loss, part["mask"], size, mode, 8).item()
        value += aggregate(value_loss.loss, part["mask"], size, mode, 8).item()
    assert policy == pytest.approx(step.policy_loss, abs=1e-8)
    assert value == pytest.approx(step.value_loss, abs=1e-8)


@pytest.mark.parametrize("seed", range(5))
def test_a31_metrics_equal_the_oracle(seed: int, pad: Callable, pad_mask: Callable) -> None:
    rng = random.Random(seed)
    rollouts = random_rollouts(rng, samples=6)
    samples = make_experience(rollouts, kl_coef=0.0, gamma=1.0, lam=1.0, whiten_advantages=False)
    new = [[x + rng.gauss(0, 0.4) for x in s.logprobs] for s in samples]
    new_values = [[x + rng.gauss(0, 0.4) for x in s.values] for s in samples]
    step = reference_step(list(zip(samples, new, new_values, strict=True)), clip_range=0.2, value_clip=0.2)
    column = {name: pad([getattr(s, name) for s in samples], extra=3) for name in ("logprobs", "advantages", "returns")}
    mask = pad_mask([s.mask for s in samples], 3)
    policy = clipped_policy_loss(pad(new, extra=3), column["logprobs"], column["advantages"], clip_range=0.2)
    values = pad([s.values for s in samples], extra=3)
    value = clipped_value_loss(pad(new_values, extra=3), values, column["returns"], value_clip=0.2)
    for tensor, expected in (
        (policy.approx_kl, step.approx_kl),
        (policy.clipped.double(), step.clip_fraction),
        (policy.ratio, step.ratio),
        (value.clipped.double(), step.value_clip_fraction),
    ):
        assert masked_mean(tensor, mask).item() == pytest.approx(expected, abs=1e-12)
