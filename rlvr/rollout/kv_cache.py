"""A key-value cache with room to grow: each step writes in place what transformers' `DynamicCache` copies.

`DynamicCache` concatenates, so every step moves all keys and values of all layers to fresh memory; on a CPU that was
half to three quarters of the time of a decoding step. Here each layer has a buffer with spare columns, and what a layer
gets back is a view. Rows that are finished give their place to rows from the end, so a batch shrinks by moving few rows.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

GROWTH = 1.5
"""Factor of a buffer's columns when it is full: a token is copied twice on average, however long the response."""


class PreallocatedCache(DynamicCache):
    """Keys and values [B, H, T, D] of each layer, in buffers of at least T columns.

    It overrides what models call (`update`, `get_seq_length`, `get_mask_sizes`), which is the same from transformers
    4.51 to 5: how a version stores its own caches doesn't matter. Layers with a sliding window are kept in full: the
    attention mask, which models make from `get_mask_sizes`, hides what has slid out.
    """

    def __init__(self) -> None:
        super().__init__()
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self._filled: list[int] = []
        self._rows = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append [B, H, N, D] keys and values to a layer. Returns all of its keys and values, as views.

        They are kept as attention multiplies them: cast once, under autocast, not all of them again at each step.
        """
        key_states, value_states = _as_multiplied(key_states), _as_multiplied(value_states)
        if layer_idx == len(self._buffers):  # the first call: the prompts
            self._buffers.append((key_states, value_states))
            self._filled.append(key_states.size(2))
            self._rows = key_states.size(0)
            return key_states, value_states
        begin = self._filled[layer_idx]
        end = begin + key_states.size(2)
        if end > self._buffers[layer_idx][0].size(2):
            self._grow(layer_idx, max(end, int(begin * GROWTH)))
        keys, values = self._buffers[layer_idx]  # [B or more, H, T or more, D]
        keys[: self._rows, :, begin:end] = key_states
        values[: self._rows, :, begin:end] = value_states
        self._filled[layer_idx] = end
        return keys[: self._rows, :, :end], values[: self._rows, :, :end]

    def _grow(self, layer: int, columns: int) -> None:
        self._buffers[layer] = tuple(  # type: ignore[assignment]
            _copy(old[: self._rows, :, : self._filled[layer]], columns) for old in self._buffers[layer]
        )

    def expand(self, rows: Tensor, columns: int) -> None:
        """Make the present row `rows[i]` the new row i, with room for `columns` tokens: one prompt's cache for its samples."""
        for layer, buffers in enumerate(self._buffers):
            self._buffers[layer] = tuple(_copy(old, columns, rows) for old in buffers)  # type: ignore[assignment]
        self._rows = len(rows)

    def move(self, source: Tensor, target: Tensor, rows: int) -> None:
        """Copy the rows `source` to the rows `target`, and keep the first `rows`."""
        if len(source):
            for (keys, values), filled in zip(self._buffers, self._filled, strict=True):
                keys[target, :, :filled] = keys[source, :, :filled]
                values[target, :, :filled] = values[source, :, :filled]
        self._rows = rows

    def get_seq_length(self, layer_idx: int | None = 0) -> int:
        """Tokens in a layer; 0 before its first."""
        layer = layer_idx or 0
        return self._filled[layer] if layer < len(self._filled) else 0

    def get_mask_sizes(self, query_length: Any, layer_idx: int = 0) -> tuple[int, int]:
        """Length and offset of the keys that a mask has to cover (some versions give the positions, not their number)."""
        new = len(query_length) if isinstance(query_length, Tensor) else int(query_length)
        return self.get_seq_length(layer_idx) + new, 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Column of the first new token."""
        return self.get_seq_length(layer_idx)

    def __len__(self) -> int:
        return len(self._buffers)


def _as_multiplied(x: Tensor) -> Tensor:
    kind = x.device.type
    cast = torch.is_autocast_enabled(kind) and x.dtype == torch.float32
    return x.to(torch.get_autocast_dtype(kind)) if cast else x


def _copy(old: Tensor, columns: int, rows: Tensor | None = None) -> Tensor:
    """`old` (or its rows `rows`) at the front of a buffer with `columns` columns."""
    count = old.size(0) if rows is None else len(rows)
    new = torch.empty((count, old.size(1), columns, old.size(3)), dtype=old.dtype, device=old.device)
    new[:, :, : old.size(2)] = old if rows is None else old[rows]
    return new
