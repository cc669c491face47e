"""Drawing tokens: frequencies against probabilities, truncation against transformers' own."""

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from rlvr.rollout.decode import SMALL, draw_weighted, make_draw, truncated


def chi_square(counts: torch.Tensor, p: torch.Tensor) -> float:
    """z-score of Pearson's statistic over tokens expected at least 5 times; the rest count as one."""
    n = counts.sum()
    rare = p * n < 5
    observed = torch.cat([counts[~rare], counts[rare].sum()[None]]).double()
    expected = torch.cat([p[~rare], p[rare].sum()[None]]).double() * n
    seen = expected > 0
    degrees = int(seen.sum()) - 1
    statistic = float(((observed - expected).square()[seen] / expected[seen]).sum())
    return (statistic - degrees) / (2 * degrees) ** 0.5


@pytest.mark.parametrize("size", [1, 2, 40, SMALL, SMALL + 1, 5000, 32768])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_a02_frequencies_are_the_softmax_at_the_temperature(size: int, temperature: float) -> None:
    logits = 2.5 * torch.randn(size, generator=torch.Generator().manual_seed(size))
    draw = make_draw(temperature, 0, 1.0, torch.Generator().manual_seed(7))
    counts = torch.zeros(size)
    for _ in range(20):
        tokens, logprobs = draw(logits.expand(1000, size))
        counts += torch.bincount(tokens, minlength=size)
    p = (logits.double() / temperature).softmax(0)
    if size > 1:
        assert abs(chi_square(counts, p)) < 4
    torch.testing.assert_close(logprobs, p.log()[tokens].float(), atol=1e-5, rtol=1e-5)


def test_rows_are_drawn_from_their_own_distributions_and_independently() -> None:
    weights = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)).repeat(20000, 1)
    tokens, _ = draw_weighted(weights, torch.Generator().manual_seed(1))
    tokens = tokens.view(-1, 4)
    p = weights[:4] / weights[:4].sum(1, keepdim=True)
    for row in range(4):
        assert abs(chi_square(torch.bincount(tokens[:, row], minlength=3).float(), p[row])) < 4
    pair = torch.bincount(tokens[:, 0] * 3 + tokens[:, 1], minlength=9).float()
    assert abs(chi_square(pair, (p[0][:, None] * p[1]).flatten())) < 4


@pytest.mark.parametrize("size", [50, 6001])
def test_what_has_no_weight_is_never_drawn(size: int) -> None:
    weights = torch.zeros(5000, size)
    weights[:, 17] = 1e-30
    weights[:, -1] = 1e-30
    tokens, _ = draw_weighted(weights, torch.Generator().manual_seed(0))
    assert set(tokens.flatten().tolist()) == {17, size - 1}


@pytest.mark.parametrize(("k", "p"), [(5, 1.0), (0, 0.6), (7, 0.5), (1, 1.0), (0, 0.0), (100, 0.999), (3, 0.01)])
def test_truncation_is_that_of_transformers(k: int, p: float) -> None:
    logits = 2 * torch.randn(64, 50, generator=torch.Generator().manual_seed(0))
    expected = logits
    if k:
        expected = TopKLogitsWarper(k)(None, expected)
    if p < 1:
        expected = TopPLogitsWarper(p)(None, expected)
    kept = truncated(logits.softmax(-1), k, p)
    torch.testing.assert_close(kept / kept.sum(-1, keepdim=True), expected.softmax(-1))


def test_truncated_draws_stay_inside() -> None:
    logits = torch.randn(1, 3000, generator=torch.Generator().manual_seed(0)).expand(4000, -1)
    tokens, _ = make_draw(1.0, 3, 1.0, torch.Generator().manual_seed(0))(logits)
    assert set(tokens.tolist()) == set(logits[0].topk(3).indices.tolist())
