"""Cutting a batch of ragged sequences into passes (micro-batches) that waste little on padding.

Scoring, the PPO update and supervised training all cut their batches here, before each forward pass. The cut is free to
follow the lengths because no loss depends on it: losses are normalised over the whole optimizer step (pitfall A20).
"""

from collections.abc import Sequence
from functools import partial

import torch

from rlvr.boost.process import max_over_ranks

PASS_TOKENS = 128
"""Cost of one more pass, in tokens. With fewer rows than about this, a matrix product waits for the weights to be read rather
than for arithmetic, on CPUs and GPUs alike (their ratios of arithmetic to bandwidth are of this size)."""


def cut_by_length(
    lengths: Sequence[int],
    max_rows: int,
    *,
    max_tokens: int | None = None,
    packed: bool = False,
    pieces: int = 1,
    pass_tokens: int = PASS_TOKENS,
) -> list[list[int]]:
    """Cut rows into passes of similar length at the least cost.

    A pass costs the tokens that the model computes (its rows times its longest row), plus `pass_tokens`. The cut with
    the least total is found by dynamic programming over the rows sorted by length.

    Args:
        lengths: tokens of each row; not empty.
        max_rows: most rows in one pass.
        max_tokens: most tokens that the model computes in one pass; a longer row is a pass by itself. None = no limit.
        packed: the model runs rows without padding, so that a pass costs the sum of their tokens.
        pieces: least number of passes, at most the number of rows; for processes that must all make the same number.
        pass_tokens: cost of a further pass, in tokens.

    Returns:
        Indices of the rows of each pass, shortest rows first; rows of equal length stay in order.

    Raises:
        ValueError: a limit below 1, or more pieces than rows.
    """
    if max_rows < 1 or (max_tokens is not None and max_tokens < 1) or not 1 <= pieces <= len(lengths):
        raise ValueError(f"can't cut {len(lengths)} rows with {max_rows=}, {max_tokens=}, {pieces=}")
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    bounds = _cheapest([lengths[i] for i in order], max_rows, max_tokens, packed, pass_tokens)
    # Too few passes: halve the one with the most rows, again and again. (Bounds are one more than passes.)
    while len(bounds) <= pieces:
        index = max(range(len(bounds) - 1), key=lambda i: bounds[i + 1] - bounds[i])
        bounds.insert(index + 1, (bounds[index] + bounds[index + 1]) // 2)
    return [order[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


def cut_on_all_ranks(
    lengths: Sequence[int], max_rows: int, device: torch.device, *, max_tokens: int | None = None, packed: bool = False
) -> list[list[int]]:
    """`cut_by_length`, with the same number of passes on every rank; the last ones may be empty. Collective.

    ZeRO-2 synchronises in every backward pass, plugins that shard weights in every forward pass too: a rank that made one more
    pass than the others would wait for ever (pitfall A24).
    """
    cut = partial(cut_by_length, lengths, max_rows, max_tokens=max_tokens, packed=packed)
    passes = cut() if lengths else [[]]
    needed = max_over_ranks(len(passes), device)
    if len(passes) < needed and lengths:
        passes = cut(pieces=min(needed, len(lengths)))
    # A rank with fewer rows than passes runs empty ones at the end.
    return passes + [[] for _ in range(needed - len(passes))]


def _cheapest(
    ascending: Sequence[int], max_rows: int, max_tokens: int | None, packed: bool, pass_tokens: int
) -> list[int]:
    """Bounds of the cheapest passes: 0, the end of each pass but the last, and the number of rows.

    `best[end]` is the least cost of the first `end` rows and `previous[end]` where the last of their passes begins. All
    beginnings of a pass are tried at once, as a tensor.
    """
    n = len(ascending)
    best = torch.zeros(n + 1, dtype=torch.float64)  # sums of tokens are exact in float64
    previous = [0] * (n + 1)
    places = torch.arange(n + 1, dtype=torch.float64)
    totals = torch.tensor([0, *ascending], dtype=torch.float64).cumsum(0)
    for end in range(1, n + 1):
        first = max(0, end - max_rows)
        if packed:
            tokens = totals[end] - totals[first:end]
        else:
            tokens = (end - places[first:end]) * ascending[end - 1]  # rows ascend: the last is the longest
        costs = best[first:end] + tokens
        if max_tokens is not None:
            # All but the last, the pass of one row, which is allowed whatever its length.
            costs[:-1][tokens[:-1] > max_tokens] = torch.inf
        at = int(costs.argmin())
        best[end], previous[end] = costs[at] + pass_tokens, first + at
    bounds = [n]
    while bounds[0]:
        bounds.insert(0, previous[bounds[0]])
    return bounds
