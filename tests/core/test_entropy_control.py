"""The tokens that entropy control chooses: against plain Python, on one rank and on several."""

import math
import threading
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlvr.core.entropy_control import SHARES, choose_tokens, covariances, largest
from rlvr.core.losses import kl_cov_penalty

numbers = st.one_of(st.floats(-1e6, 1e6, width=32), st.sampled_from([0.0, -0.0, 1e-38, -1e-38, 3e38, -3e38]))


def on_ranks(shares: list[Any], run: Callable[[Any, Callable[[Tensor], Tensor]], Tensor]) -> list[Tensor]:
    """What `run(share, all_reduce)` gives on each of several ranks, which are threads here."""
    barrier = threading.Barrier(len(shares), timeout=30)
    parts: list[Tensor] = [torch.zeros(())] * len(shares)
    results: list[Any] = [None] * len(shares)

    def work(rank: int) -> None:
        def all_reduce(x: Tensor) -> Tensor:
            parts[rank] = x
            barrier.wait()
            total = torch.stack(parts).sum(0)
            barrier.wait()
            return total

        results[rank] = run(shares[rank], all_reduce)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(shares))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@settings(deadline=None, max_examples=200)
@given(tokens=st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=12), count=st.integers(1, 14))
def test_the_largest_are_those_of_a_sorted_list(tokens: list[tuple[float, bool]], count: int) -> None:
    values, eligible = torch.tensor([v for v, _ in tokens]), torch.tensor([e for _, e in tokens])
    chosen = largest(values, eligible, count, lambda x: x)
    ranked = sorted((v for v, e in tokens if e), reverse=True)
    limit = ranked[min(count, len(ranked)) - 1] if ranked else math.inf
    # 0.0 and -0.0 are neighbours in the order of float32 and equal in a list's.
    assert [bool(c) for c in chosen if limit != 0] == [e and v >= limit for v, e in tokens if limit != 0]
    assert chosen.sum() >= min(count, len(ranked))


def test_ranks_choose_as_one_would() -> None:
    generator = torch.Generator().manual_seed(0)
    values, logprobs, advantages = (torch.randn(6, 7, generator=generator) for _ in range(3))
    mask = torch.rand(6, 7, generator=generator) > 0.3

    def choose(rows: slice, all_reduce: Callable[[Tensor], Tensor]) -> Tensor:
        options: dict[str, Any] = {
            "logprobs": logprobs[rows], "advantages": advantages[rows], "entropy": values[rows], "lots": values[rows],
            "covariances_from": 0.1, "covariances_to": 1.0, "all_reduce": all_reduce,
        }  # fmt: skip
        return torch.stack([choose_tokens(kind, 0.2, mask[rows], **options) for kind in SHARES])

    alone = choose(slice(0, 6), lambda x: x)
    together = on_ranks([slice(0, 2), slice(2, 6)], choose)
    assert torch.equal(torch.cat(together, dim=1), alone)
    assert alone.sum((1, 2)).tolist() == [int(0.2 * mask.sum())] * 3 and not (alone & ~mask).any()


def test_what_is_chosen_is_what_the_papers_choose() -> None:
    """By hand: 5 tokens count; the means are -1.25 and 0.5."""
    mask = torch.tensor([[True, True, True], [True, True, False]])
    logprobs = torch.tensor([[-0.25, -1.25, -2.25], [-0.25, -2.25, 9.0]])
    advantages = torch.tensor([[2.5, 0.5, -1.5], [-1.5, 2.5, 9.0]])
    cov = covariances(logprobs, advantages, mask, lambda x: x)
    torch.testing.assert_close(cov, torch.tensor([[2.0, 0.0, 2.0], [-2.0, -2.0, 0.0]]).double())
    options: dict[str, Any] = {
        "logprobs": logprobs, "advantages": advantages, "covariances_from": 1.0, "covariances_to": 5.0,
        "entropy": torch.tensor([[0.1, 0.5, 0.2], [0.3, 0.4, 9.0]]), "lots": torch.tensor([[0.3, 0.9, 0.6], [1.0, 1.0, 1.0]]),
    }  # fmt: skip
    assert choose_tokens("top_entropy", 0.4, mask, **options).tolist() == [[False, True, False], [False, True, False]]
    assert choose_tokens("clip_cov", 0.2, mask, **options).tolist() == [[False, False, True], [False, False, False]]
    assert choose_tokens("kl_cov", 1e-6, mask, **options).tolist() == [[True, False, True], [False] * 3], "a tie: both"
    narrow = options | {"covariances_from": 3.0}
    assert not choose_tokens("clip_cov", 0.2, mask, **narrow).any()
    assert not choose_tokens("kl_cov", 0.2, torch.zeros_like(mask), **options).any()


def test_the_penalty_is_of_the_chosen_tokens_alone() -> None:
    new = torch.tensor([-1.0, -2.0, -3.0, math.nan], requires_grad=True)
    old = torch.tensor([-1.5, -1.0, -1.0, 0.0])
    penalty = kl_cov_penalty(new, old, torch.tensor([True, True, False, False]))
    assert penalty.tolist() == [0.5, 1.0, 0.0, 0.0]
    (gradient,) = torch.autograd.grad(penalty.sum(), new)
    assert gradient.tolist() == [1.0, -1.0, 0.0, 0.0]
