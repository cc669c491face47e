"""Cutting a batch of ragged sequences into passes (micro-batches) that cost little.

Scoring, the PPO update and supervised training all cut their batches here, before each forward pass. The cut is free to
follow lengths and beginnings because no loss depends on it: losses are normalised over the whole optimizer step (pitfall A20).
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F

from rlvr.boost.process import max_over_ranks
from rlvr.models.batch import common_beginning

PASS_TOKENS = 128
"""Cost of one more pass, in tokens. With fewer rows than about this, a matrix product waits for the weights to be read rather
than for arithmetic, on CPUs and GPUs alike (their ratios of arithmetic to bandwidth are of this size)."""


SLOT_TOKENS = 0.15
"""Cost of a place in the rows that attention works on, padding and equal beginnings included, in tokens of a model that computes
neither. For SmolLM2-135M, at a few hundred tokens a row."""


def cut(
    lengths: Sequence[int],
    max_rows: int,
    *,
    max_tokens: int | None = None,
    sequences: Sequence[Sequence[int]] | None = None,
    pieces: int = 1,
    pass_tokens: int = PASS_TOKENS,
) -> list[list[int]]:
    """Cut rows into passes at the least cost.

    A pass costs the tokens that the model computes, plus `pass_tokens`. With padding these are its rows times its longest row,
    so that rows of similar length go together. Without padding they are what the rows don't begin with alike (and
    `SLOT_TOKENS`): rows that begin alike go together, if that costs less. The cut with the least total is found by dynamic
    programming over the rows in order.

    Args:
        lengths: tokens of each row; not empty.
        max_rows: most rows in one pass.
        max_tokens: most tokens that the model computes in one pass; a longer row is a pass by itself. None = no limit.
        sequences: the token ids of each row, if the model runs rows without padding and computes equal beginnings once.
        pieces: least number of passes, at most the number of rows; for processes that must all make the same number.
        pass_tokens: cost of a further pass, in tokens.

    Returns:
        Indices of the rows of each pass, shortest rows first where lengths decide; rows of equal length stay in order.

    Raises:
        ValueError: a limit below 1, or more pieces than rows.
    """
    if max_rows < 1 or (max_tokens is not None and max_tokens < 1) or not 1 <= pieces <= len(lengths):
        raise ValueError(f"can't cut {len(lengths)} rows with {max_rows=}, {max_tokens=}, {pieces=}")
    orders = [sorted(range(len(lengths)), key=lambda i: lengths[i])]
    if sequences is not None:
        orders.append(sorted(range(len(lengths)), key=lambda i: tuple(sequences[i])))
    cuts = []
    for order in orders:
        alike = None if sequences is None else _alike([sequences[i] for i in order])
        cuts.append((*_cheapest([lengths[i] for i in order], alike, max_rows, max_tokens, pass_tokens), order))
    _, bounds, order = min(cuts, key=lambda one: one[0])
    # Too few passes: halve the one with the most rows, again and again. (Bounds are one more than passes.)
    while len(bounds) <= pieces:
        index = max(range(len(bounds) - 1), key=lambda i: bounds[i + 1] - bounds[i])
        bounds.insert(index + 1, (bounds[index] + bounds[index + 1]) // 2)
    return [order[start:end] for start, end in pairwise(bounds)]


def cut_on_all_ranks(
    lengths: Sequence[int],
    max_rows: int,
    device: torch.device,
    *,
    max_tokens: int | None = None,
    sequences: Sequence[Sequence[int]] | None = None,
) -> list[list[int]]:
    """`cut`, with the same number of passes on every rank; the last ones may be empty. Collective.

    ZeRO-2 synchronises in every backward pass, plugins that shard weights in every forward pass too: a rank that made one more
    pass than the others would wait for ever (pitfall A24).
    """
    of_rank = partial(cut, lengths, max_rows, max_tokens=max_tokens, sequences=sequences)
    passes = of_rank() if lengths else [[]]
    needed = max_over_ranks(len(passes), device)
    if len(passes) < needed and lengths:
        passes = of_rank(pieces=min(needed, len(lengths)))
    # A rank with fewer rows than passes runs empty ones at the end.
    return passes + [[] for _ in range(needed - len(passes))]


def _alike(sequences: Sequence[Sequence[int]]) -> list[int]:
    """How many tokens each sequence begins with as the one before it does; 0 for the first."""
    return [0, *(common_beginning(one, other) for one, other in pairwise(sequences))]


def _cheapest(
    lengths: Sequence[int], alike: Sequence[int] | None, max_rows: int, max_tokens: int | None, pass_tokens: int
) -> tuple[float, list[int]]:
    """The cheapest passes of rows in this order, with what they cost: 0, the end of each pass but the last, and the number of rows.

    `best[end]` is the least cost of the first `end` rows and `previous[end]` where the last of their passes begins. All
    beginnings of a pass are tried at once, as a tensor.

    Args:
        alike: as of `_alike`, of a model that computes neither padding nor equal beginnings; None = of one with padding.
    """
    n = len(lengths)
    best = torch.zeros(n + 1, dtype=torch.float64)  # sums of tokens are exact in float64
    previous = [0] * (n + 1)
    sizes = torch.tensor(lengths, dtype=torch.float64)
    same = torch.zeros(n, dtype=torch.float64) if alike is None else torch.tensor(alike, dtype=torch.float64)
    totals = F.pad((sizes - same).cumsum(0), (1, 0))
    for end in range(1, n + 1):
        first = max(0, end - max_rows)
        longest = sizes[first:end].flip(0).cummax(0).values.flip(0)
        slots = torch.arange(end - first, 0, -1) * longest
        # The first row of a pass has none before it that begins alike.
        tokens = slots if alike is None else totals[end] - totals[first:end] + same[first:end]
        costs = best[first:end] + tokens + (0 if alike is None else SLOT_TOKENS * slots)
        if max_tokens is not None:
            # All but the last, the pass of one row, which is allowed whatever its length.
            costs[:-1][tokens[:-1] > max_tokens] = torch.inf
        at = int(costs.argmin())
        best[end], previous[end] = costs[at] + pass_tokens, first + at
    bounds = [n]
    while bounds[0]:
        bounds.insert(0, previous[bounds[0]])
    return float(best[n]), bounds
