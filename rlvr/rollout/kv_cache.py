"""A key-value cache with room to grow: each step writes in place what transformers' `DynamicCache` copies.

`DynamicCache` concatenates, so every step moves all keys and values of all layers to fresh memory; on a CPU that was
half to three quarters of the time of a decoding step. Here each layer has a buffer with spare columns, and what a layer
gets back is a view. Rows that are finished give their place to rows from the end, so a batch shrinks by moving few rows.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

RowCache = Sequence[tuple[Tensor, Tensor]]
"""Keys and values [H, N, D] of N tokens of one row, by layer."""
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
            filled = self._filled[layer]
            self._buffers[layer] = tuple(_copy(old[:, :, :filled], columns, rows) for old in buffers)  # type: ignore[assignment]
        self._rows = len(rows)

    def fill(self, rows: Sequence[RowCache | None], room: int) -> int:
        """Begin with what is known of the beginning of each row (None: nothing), which ends in the last of as many columns as the longest
        has; returns their number. Other columns are 0. There is room for so many tokens more."""
        layers = next(row for row in rows if row is not None)
        columns = max(row[0][0].size(1) for row in rows if row is not None)
        for layer, pair in enumerate(layers):
            buffers = tuple(x.new_zeros(len(rows), x.size(0), columns + room, x.size(2)) for x in pair)
            for place, row in enumerate(rows):
                for buffer, known in zip(buffers, row[layer] if row is not None else (), strict=False):
                    buffer[place, :, columns - known.size(1) : columns] = known
            self._buffers.append(buffers)  # type: ignore[arg-type]
            self._filled.append(columns)
        self._rows = len(rows)
        return columns

    def take(self, rows: Tensor, mask: Tensor) -> list[RowCache]:
        """Keys and values of these rows, without the columns where `mask` [rows, columns] is false."""
        # Tokens moved to the end, in order, so that a row's are one piece.
        order = mask.long().argsort(dim=1, stable=True)[:, None, :, None]
        counts = mask.sum(1).tolist()
        layers = []
        for pair in self._buffers:
            some = (x[rows][:, :, : mask.size(1)] for x in pair)
            layers.append([x.gather(2, order.expand_as(x)) for x in some])
        size = mask.size(1)
        return [[(k[i, :, size - n :], v[i, :, size - n :]) for k, v in layers] for i, n in enumerate(counts)]

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


class Prefixes:
    """Keys and values of sequences that may be gone on with: the episodes of one turn, for the next.

    Args:
        limit: most sequences that are kept of a turn.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._earlier: dict[tuple[int, ...], list[tuple[tuple[int, ...], RowCache]]] = {}
        self._lengths: list[int] = []
        self._kept: list[tuple[tuple[int, ...], RowCache]] = []

    def begin_turn(self) -> None:
        """What was kept since the last call can be taken from now on; what was kept before, and not taken, is forgotten."""
        self._earlier = {}
        for ids, row in self._kept:
            self._earlier.setdefault(_key(ids, len(ids)), []).append((ids, row))
        self._lengths = sorted({len(ids) for ids, _ in self._kept}, reverse=True)
        self._kept = []

    def keep(self, ids: tuple[int, ...], row: RowCache) -> None:
        """Remember what is known of these tokens, if there is room."""
        if len(self._kept) < self.limit:
            self._kept.append((ids, row))

    def take(self, ids: tuple[int, ...]) -> RowCache | None:
        """What is known of the longest beginning of these tokens that is shorter than they are; it is then forgotten."""
        for length in self._lengths:
            found = self._earlier.get(_key(ids, length), []) if length < len(ids) else []
            for place, (known, row) in enumerate(found):
                if known == ids[:length]:
                    del found[place]
                    return row
        return None


def _key(ids: tuple[int, ...], length: int) -> tuple[int, ...]:
    """Tells most beginnings apart without reading all of them."""
    return (length, *ids[max(0, length - 8) : length])
