"""What the tests of the pure functions share: padding of ragged lists, with rubbish in the padding."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

Pad = Callable[..., Tensor]


@pytest.fixture(scope="session")
def pad() -> Pad:
    """`pad(rows, fill=NaN, extra=0)`: a [B, longest + extra] float64 tensor of ragged rows, `fill` behind their ends."""

    def padded(rows: Sequence[Sequence[float]], fill: float = math.nan, extra: int = 0) -> Tensor:
        size = max((len(row) for row in rows), default=0) + extra
        flat = [[*row, *[fill] * (size - len(row))] for row in rows]
        return torch.tensor(flat, dtype=torch.float64).reshape(len(rows), size)

    return padded


@pytest.fixture(scope="session")
def pad_mask(pad: Pad) -> Pad:
    """`pad_mask(masks, extra=0)`: a [B, longest + extra] bool tensor, false behind the ends of the rows."""
    return lambda masks, extra=0: pad(masks, 0.0, extra).bool()
