"""Padding-free forward passes: the rows of a batch run back to back as one sequence, apart only in attention.

All that a decoder does to single tokens (projections, norms, MLPs: nearly all of its arithmetic at the lengths of
reasoning on small machines) then costs nothing for padding, and is done once for what rows begin with alike
(`SequenceBatch.first_places`): a system prompt that all have, a problem that a group answers. That is exact, as a token's
state depends on what stands before it alone, and gradients of all rows add up there. Attention lays the tokens out as rows again:
on a CPU as blocks of rows, in which only the tokens that are computed ask (`rlvr.models.attention`); elsewhere as a padded batch for
the kernel that the model has anyway. The backward pass lays them out anew: kept, the keys of a beginning that thirty rows share would
be kept thirty times, and double what a pass takes. This hooks into transformers' attention interface, so it works for every model that
uses that interface; `can_run_padding_free` finds out by trying.

Left out on purpose: kernels for variable lengths (FlashAttention's), which need a GPU and a package of their own. Rows
that several training examples share are another matter: `rlvr.models.packing`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.models import attention
from rlvr.models.batch import SequenceBatch, collate, is_first

NAME = "rlvr_padding_free"
WORTH_IT = 0.95
"""Share of a padded batch's places, from which on computing only as many tokens would not gain what it costs."""
PIECE = 256
"""Most tokens of a row that ask at once: of a longer row, causality hides nearly half of the products."""


def padding_free_hidden_states(backbone: nn.Module, batch: SequenceBatch) -> Tensor:
    """[B, T, H] the decoder's last hidden states of a right-padded batch; each beginning is computed once, padding not at all.
    Undefined on padding."""
    layout = _Layout.of(batch)
    ids, positions = (x.flatten()[layout.computed][None] for x in (batch.input_ids, batch.position_ids))
    with _installed(backbone, layout):
        hidden = backbone(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state[0]  # [N, H]
    return layout.spread(hidden)


def is_worth_it(batch: SequenceBatch) -> bool:
    """True for a batch with enough padding and equal beginnings. Their number is known without waiting for the device."""
    return batch.first_places is not None and batch.tokens < WORTH_IT * batch.input_ids.numel()


def recomputes_activations(backbone: nn.Module) -> bool:
    """True under gradient checkpointing, whose backward pass would run attention again when the layout below is gone."""
    new = getattr(backbone, "is_activation_checkpointing", None)  # transformers renamed it
    return bool(getattr(backbone, "is_gradient_checkpointing", False) if new is None else new)


@torch.no_grad()
def can_run_padding_free(backbone: nn.Module) -> bool:
    """True if the decoder gives the same states without padding as with it, tried on three rows, two of which begin alike.

    Never with sliding windows or chunked attention (a batch as short as this would not show the difference), nor with
    another kernel than PyTorch's own.
    """
    config: Any = backbone.config.get_text_config()  # type: ignore[union-attr, operator]
    if config._attn_implementation != "sdpa" or not attends_to_all(config):
        return False
    device = next(backbone.parameters()).device
    ids = torch.arange(9) % config.vocab_size
    batch = collate([ids[:1], ids[1:3], ids[1:3]], [ids[:0], ids[3:4], ids[5:]]).to(device)
    was_training = backbone.training
    backbone.eval()
    try:
        padded = backbone(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        padding_free = padding_free_hidden_states(backbone, batch)
    except TypeError:  # a model without position ids
        return False
    finally:
        backbone.train(was_training)
    real = batch.attention_mask.bool()
    return bool(torch.allclose(padded[real], padding_free[real], atol=1e-2, rtol=1e-3))


def attends_to_all(config: Any) -> bool:
    """True if the layers of a model with this configuration see all tokens before each: no sliding window, no chunks."""
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    uses = getattr(config, "use_sliding_window", True)  # Qwen2 names a window that it does not use
    window = bool(uses and getattr(config, "sliding_window", None)) or bool(
        getattr(config, "attention_chunk_size", None)
    )
    return kinds == {"full_attention"} and not window


class _Choice(NamedTuple):
    """Some of a tensor's entries, in some order and perhaps several times, and the way back for gradients."""

    places: Tensor
    """[S] which entry stands at each of S places."""
    order: Tensor
    """The places that count, by entry."""
    bounds: Tensor
    """[entries + 1] where in `order` the places of each entry begin, and its end."""

    @staticmethod
    def of(places: Tensor, counts: Tensor | None = None, *, entries: int) -> "_Choice":
        """`places` [S] of so many entries. Gradients at places that don't count (`counts` [S] is false) are known to be 0."""
        numbers = places if counts is None else places.masked_fill(~counts, entries)
        order = numbers.argsort(stable=True)
        per_entry = torch.bincount(numbers, minlength=entries + 1)[:entries]
        return _Choice(places, order[: int(per_entry.sum())], F.pad(per_entry.cumsum(0), (1, 0)))

    def take(self, entries: Tensor) -> Tensor:
        """[S, ...] the chosen ones of [entries, ...]"""
        return entries.index_select(0, self.places)

    def add_up(self, d_taken: Tensor) -> Tensor:
        """[entries, ...] gradients from those at the places [S, ...], each added up in float32 and rounded once, where indexing
        would round after each place; and on a CPU in a tenth of the time."""
        flat = d_taken.flatten(1)
        total = F.embedding_bag(self.order, flat, self.bounds, mode="sum", include_last_offset=True)
        return total.view(-1, *d_taken.shape[1:])


@dataclass(frozen=True)
class _Layout:
    """N tokens that are computed, back to back, and the B padded rows of T that they stand in.

    Attributes:
        numbers: [B, T] which of the N tokens stands at each place; any on padding.
        mask: [B, T] true on tokens.
        computed: [N] their places in the flattened rows; of tokens that several rows have, the first.
        rows: the N tokens as B * T places.
        back: the B * T places as N tokens.
    """

    numbers: Tensor
    mask: Tensor
    computed: Tensor
    rows: _Choice
    back: _Choice

    @staticmethod
    def of(batch: SequenceBatch) -> "_Layout":
        assert batch.first_places is not None
        mask = batch.attention_mask.bool()
        first = is_first(batch.first_places, batch.attention_mask)
        computed = first.flatten().nonzero().squeeze(1)
        numbers = (first.flatten().cumsum(0) - 1)[batch.first_places].masked_fill(~mask, 0)
        rows = _Choice.of(numbers.flatten(), mask.flatten(), entries=len(computed))
        return _Layout(numbers, mask, computed, rows, _Choice.of(computed, entries=numbers.numel()))

    def spread(self, states: Tensor) -> Tensor:
        """[B, T, ...] from [N, ...]"""
        return _Take.apply(states, self.rows).unflatten(0, self.numbers.shape)

    def gather(self, rows: Tensor) -> Tensor:
        """[N, ...] from [B, T, ...]"""
        return _Take.apply(rows.flatten(0, 1), self.back)

    @cached_property
    def blocks(self) -> "_Blocks":
        return _Blocks.of(self)


class _Piece(NamedTuple):
    """The tokens from `begin` to `end` of a row: they ask all of the row's up to themselves."""

    row: int
    begin: int
    end: int

    @property
    def pairs(self) -> tuple[int, int]:
        """Queries and keys that it gets."""
        return _rounded(self.end - self.begin), _rounded(self.end)


class _Blocks(NamedTuple):
    """N tokens as the queries and the keys of blocks. What a row does not ask itself, because another row began alike, has no
    query in it."""

    blocks: list[attention.Block]
    queries: _Choice
    """The N tokens as S places."""
    keys: _Choice
    """The N tokens as L places."""
    back: _Choice
    """The S places as N tokens."""

    @staticmethod
    def of(layout: _Layout) -> "_Blocks":
        blocks, asking, seen = [], [], []
        last = layout.numbers.size(1) - 1
        for pieces in _alike(_pieces(layout)):
            rows, begins, ends = torch.tensor(pieces).unbind(1)
            most_asked, most_seen = map(max, zip(*(piece.pairs for piece in pieces), strict=True))
            blocks.append(attention.Block(attention.hide(begins, most_asked, most_seen), len(pieces)))
            # Behind the end of a piece stands any token: no other query sees it, and nothing reads what it asked.
            numbers, key = layout.numbers[rows], torch.arange(most_seen)
            query = begins[:, None] + torch.arange(most_asked)
            asking.append((numbers.gather(1, query.clamp(max=last)).flatten(), (query < ends[:, None]).flatten()))
            seen.append((numbers[:, key.clamp(max=last)].flatten(), (key < ends[:, None]).flatten()))
        entries = len(layout.computed)
        queries, keys = (_Choice.of(*map(torch.cat, zip(*of, strict=True)), entries=entries) for of in (asking, seen))
        return _Blocks(blocks, queries, keys, _Choice.of(queries.order, entries=len(queries.places)))

    def lay_out(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The blocks' from those of the N tokens."""
        return self.queries.take(query), self.keys.take(key), self.keys.take(value)


def _pieces(layout: _Layout) -> Iterator[_Piece]:
    """Of each row the tokens that are computed, which no row before it has: its last ones."""
    lengths = layout.mask.sum(1)
    own = torch.bincount(layout.computed // layout.numbers.size(1), minlength=len(lengths))
    for row, (length, count) in enumerate(zip(lengths.tolist(), own.tolist(), strict=True)):
        for begin in range(length - count, length, PIECE):
            yield _Piece(row, begin, min(begin + PIECE, length))


def _alike(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """As many pieces as make a block, such of similar lengths together."""
    block: list[_Piece] = []
    most_asked = most_seen = 0
    for piece in sorted(pieces, key=lambda piece: (piece.pairs, piece.row)):
        asked, seen = (max(*both) for both in zip(piece.pairs, (most_asked, most_seen), strict=True))
        if block and (len(block) + 1) * asked * seen > attention.BLOCK_PAIRS:
            yield block
            block, (asked, seen) = [], piece.pairs
        block, most_asked, most_seen = [*block, piece], asked, seen
    yield block


def _rounded(tokens: int) -> int:
    return -(-tokens // attention.ROUNDING) * attention.ROUNDING


class _Take(torch.autograd.Function):
    """`_Choice.take` with gradients."""

    @staticmethod
    def forward(ctx: Any, entries: Tensor, choice: _Choice) -> Tensor:
        ctx.choice = choice
        return choice.take(entries)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_taken: Tensor) -> tuple[Tensor, None]:
        return ctx.choice.add_up(d_taken), None


class _AttentionOfTokens(torch.autograd.Function):
    """[N, heads, D] attention of the N tokens in blocks, which keeps nothing but their queries, keys and values."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, laid: _Blocks, scale: float) -> Tensor:
        ctx.save_for_backward(query, key, value)
        ctx.laid, ctx.scale = laid, scale
        return laid.back.take(attention.attend(*laid.lay_out(query, key, value), laid.blocks, scale))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        laid = ctx.laid
        query, key, value = laid.lay_out(*ctx.saved_tensors)
        d_out = laid.back.add_up(d_out)
        gradients = attention.attend_backward(query, key, value, laid.blocks, ctx.scale, d_out)
        choices = (laid.queries, laid.keys, laid.keys)
        return *(choice.add_up(x) for choice, x in zip(choices, gradients, strict=True)), None, None


# Attention functions get no arguments of ours through a transformers model, so the layout is handed to them here.
_layout: ContextVar[_Layout] = ContextVar("layout of the batch that runs without padding")


@contextmanager
def _installed(backbone: nn.Module, layout: _Layout) -> Iterator[None]:
    """The decoder attends by `_attention`, over this layout."""
    config: Any = backbone.config.get_text_config()  # type: ignore[union-attr, operator]
    before = config._attn_implementation
    token = _layout.set(layout)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _layout.reset(token)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Causal attention within each row: [1, heads, N, D] queries, keys and values to [1, N, heads, D]."""
    layout = _layout.get()
    tokens = [x[0].transpose(0, 1) for x in (query, key, value)]  # [N, heads, D]
    if (dtype := attention.dtype_of_products(query, kwargs)) is not None:
        blocks, scale = layout.blocks, attention.scale_of(query, kwargs)
        return _AttentionOfTokens.apply(*(x.to(dtype) for x in tokens), blocks, scale)[None], None
    attend = partial(_padded_attention, module, layout, kwargs)
    draws = bool(kwargs.get("dropout"))  # or else no random state need be kept
    return checkpoint(attend, *tokens, use_reentrant=False, preserve_rng_state=draws)[None], None


def _padded_attention(
    module: nn.Module, layout: _Layout, kwargs: dict[str, Any], query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    """[N, heads, D] by the model's own kernel."""
    # [B, heads, T, D]. Queries of equal beginnings go in for each row, which costs less than telling them apart would.
    padded = [layout.spread(x).transpose(1, 2) for x in (query, key, value)]
    # Rows are right-padded, so causality alone keeps their tokens from padding; the mask that the model made spans the
    # N tokens of all rows, and would be wrong here.
    out, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](module, *padded, None, **kwargs | {"is_causal": True})  # [B, T, heads, D]
    return layout.gather(out)


ALL_ATTENTION_FUNCTIONS[NAME] = _attention
