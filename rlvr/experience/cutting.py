"""Cutting a batch of ragged sequences into passes that waste little on padding."""

from collections.abc import Sequence
from functools import partial

import torch

from rlvr.boost.process import max_over_ranks

# What a further pass costs, in tokens: with fewer rows than about this a matrix product waits for the weights to be read
# rather than for arithmetic, on CPUs and GPUs alike (their ratios of arithmetic to bandwidth are of this size).
PASS_TOKENS = 128


def cut_by_length(
    lengths: Sequence[int],
    max_rows: int,
    *,
    max_tokens: int | None = None,
    packed: bool = False,
    pieces: int = 1,
    pass_tokens: int = PASS_TOKENS,
) -> list[list[int]]:
    """Cut rows into passes of similar length, the cheapest way there is.

    A pass costs the tokens that the model computes (its rows times its longest row), plus `pass_tokens`. The cut with
    the least total is found by dynamic programming over the rows sorted by length.

    Args:
        lengths: tokens of each row; not empty.
        max_rows: most rows in one pass.
        max_tokens: most tokens that the model computes in one pass; a longer row is a pass by itself. None = no limit.
        packed: the model runs rows without padding, which then costs nothing.
        pieces: least number of passes, at most the number of rows. Where every backward pass is collective, all
            processes must make the same number.
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
    while len(bounds) <= pieces:  # bounds hold one more than there are passes
        index = max(range(len(bounds) - 1), key=lambda i: bounds[i + 1] - bounds[i])
        bounds.insert(index + 1, (bounds[index] + bounds[index + 1]) // 2)
    return [order[start:end] for start, end in zip(bounds, bounds[1:], strict=False)]


def cut_on_all_ranks(
    lengths: Sequence[int], max_rows: int, device: torch.device, *, max_tokens: int | None = None, packed: bool = False
) -> list[list[int]]:
    """`cut_by_length` into as many passes on every rank, of which the last may be empty. Collective.

    ZeRO-2 synchronises in every backward pass, plugins that shard weights in every forward pass too, and a rank that made one
    more would wait for ever.
    """
    cut = partial(cut_by_length, lengths, max_rows, max_tokens=max_tokens, packed=packed)
    passes = cut() if lengths else [[]]
    needed = max_over_ranks(len(passes), device)
    if len(passes) < needed and lengths:
        passes = cut(pieces=min(needed, len(lengths)))
    return passes + [[] for _ in range(needed - len(passes))]


def _cheapest(
    ascending: Sequence[int], max_rows: int, max_tokens: int | None, packed: bool, pass_tokens: int
) -> list[int]:
    """0, the ends of all passes but the last, and the number of rows."""
    n = len(ascending)
    best = torch.zeros(n + 1, dtype=torch.float64)
    previous = [0] * (n + 1)
    places = torch.arange(n + 1, dtype=torch.float64)
    totals = torch.tensor([0, *ascending], dtype=torch.float64).cumsum(0)
    for end in range(1, n + 1):
        first = max(0, end - max_rows)
        if packed:
            tokens = totals[end] - totals[first:end]
        else:
            tokens = (end - places[first:end]) * ascending[end - 1]
        costs = best[first:end] + tokens
        if max_tokens is not None:
            costs[:-1][tokens[:-1] > max_tokens] = torch.inf
        at = int(costs.argmin())
        best[end], previous[end] = costs[at] + pass_tokens, first + at
    bounds = [n]
    while bounds[0]:
        bounds.insert(0, previous[bounds[0]])
    return bounds
