"""`SequenceBatch`: ragged prompts and responses laid out as one padded batch for a forward pass.

Experience is stored ragged; padding exists only between the buffer and the model, and begins here. The mask and the
position ids come from the lengths, never from comparing token ids (so EOS == PAD changes nothing).

    [P P P R R R . .]     a prompt of 3 tokens, a response of 3; T = 8
    [P R R R R . . .]     response_index: the columns of R; response_mask: which of its entries are real
    [P P R R E E R .]     an environment's tokens E stand inside the response: they are read like the prompt, and are none of R

So whatever is computed for response tokens is computed for those that the policy chose, which stand side by side in [B, R].

Rows often begin alike: with one system prompt, or with the problem that a group of responses answers. The state of a token
depends on nothing but what stands before it, so equal beginnings have equal states, and `first_places` says which are equal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class SequenceBatch:
    """Prompts followed by responses, padded.

    Attributes:
        input_ids: [B, T] token ids.
        attention_mask: [B, T] 1 on tokens, 0 on padding.
        position_ids: [B, T] 0, 1, 2, ... over each row's tokens; 0 on padding.
        response_index: [B, R] column in T of each response token that the policy chose (in supervised rows: that is learned); 1 where
            there is none.
        response_mask: [B, R] true where there is one. R is the largest number of them in a row, at least 1.
        right_padded: no token of a row comes after padding, so that causal attention needs no mask.
        tokens: how many tokens a decoder without padding computes: those that are the first with their beginning (`is_first`).
        first_places: [B, T] where, in the flattened batch, the first token stands whose row began as this one's until here:
            its own place, or that of a token in another row. None on left-padded batches and with `shared_rows`.
        shared_rows: rows hold several sequences, which their position ids tell apart (`rlvr.models.packing`).
    """

    input_ids: Tensor
    attention_mask: Tensor
    position_ids: Tensor
    response_index: Tensor
    response_mask: Tensor
    right_padded: bool = False
    tokens: int = 0
    first_places: Tensor | None = None
    shared_rows: bool = False

    @property
    def response_ids(self) -> Tensor:
        """[B, R] the response tokens, whatever stands where there is none."""
        return self.input_ids.gather(1, self.response_index)

    def to(self, device: torch.device) -> "SequenceBatch":
        tensors = {name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, **tensors)  # type: ignore[arg-type]


def collate(
    prompts: Sequence[Tensor],
    responses: Sequence[Tensor],
    action_masks: Sequence[Tensor | None] | None = None,
    *,
    pad_id: int = 0,
    padding_side: Literal["left", "right"] = "right",
    pad_to: int | None = None,
) -> SequenceBatch:
    """Lay out B prompts and their responses as a `SequenceBatch`.

    Args:
        prompts, responses: 1-D tensors of token ids, on any device; a response may be empty.
        action_masks: of each response, which of its tokens the policy chose; None = all.
        pad_id: token id of padding; no result depends on it.
        padding_side: side of the padding; no result depends on it.
        pad_to: columns of the batch; by default the longest row.

    Raises:
        ValueError: a prompt without tokens, or `pad_to` smaller than the longest row.
    """
    if any(len(p) == 0 for p in prompts):
        raise ValueError("every prompt needs at least one token: the first response token is predicted from it")
    prompt_lengths = torch.tensor([len(p) for p in prompts])
    lengths = prompt_lengths + torch.tensor([len(r) for r in responses])
    size = int(lengths.max()) if pad_to is None else pad_to
    if size < int(lengths.max()):
        raise ValueError(f"pad_to={pad_to} is less than the longest row of {int(lengths.max())} tokens")
    # Column of each row's first token.
    start = (size - lengths) if padding_side == "left" else torch.zeros_like(lengths)
    columns = torch.arange(size)
    offsets = columns[None, :] - start[:, None]  # [B, T] place within the row's own tokens
    mask = (offsets >= 0) & (offsets < lengths[:, None])
    input_ids = torch.full((len(prompts), size), pad_id, dtype=torch.long)  # [B, T]
    input_ids[mask] = torch.cat(
        [t.to("cpu", torch.long) for pair in zip(prompts, responses, strict=True) for t in pair]
    )
    chosen = [torch.ones(len(r), dtype=torch.bool) for r in responses]
    if action_masks is not None:
        chosen = [own if mask is None else mask.cpu() for own, mask in zip(chosen, action_masks, strict=True)]
    actions = [mask.nonzero().squeeze(1) for mask in chosen]  # [A] each, places in the response
    counts = torch.tensor([len(places) for places in actions])
    response_mask = torch.arange(max(1, int(counts.max())))[None, :] < counts[:, None]
    # 1 where there is no token: any column that has one before it, from which a token would be predicted.
    index = torch.ones(response_mask.shape, dtype=torch.long)
    index[response_mask] = torch.cat(actions) + (start + prompt_lengths).repeat_interleave(counts)
    first = first_places(input_ids, mask) if padding_side == "right" else None
    return SequenceBatch(
        input_ids=input_ids,
        attention_mask=mask.long(),
        position_ids=offsets.clamp(min=0) * mask,
        response_index=index,
        response_mask=response_mask,
        right_padded=padding_side == "right",
        tokens=int(lengths.sum()) if first is None else int(is_first(first, mask).sum()),
        first_places=first,
    )


def common_beginning(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    differing = (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))


def first_places(ids: Tensor, mask: Tensor) -> Tensor:
    """[B, T] `SequenceBatch.first_places` of right-padded rows.

    In the order of their ids, rows that begin alike stand side by side: the first row with a token's beginning is then the last
    one, up to this row, that differs there from the row above it.

    Args:
        ids: [B, T] token ids.
        mask: [B, T] true on tokens.
    """
    rows, size = ids.shape
    order = torch.tensor(sorted(range(rows), key=ids.where(mask, -1).tolist().__getitem__))
    ids, mask = ids[order], mask[order]
    alike = torch.zeros_like(mask)
    alike[1:] = ((ids[1:] == ids[:-1]) & mask[1:] & mask[:-1]).cumprod(1).bool()
    place = torch.arange(rows)[:, None]
    first_row = place.masked_fill(alike, 0).cummax(0).values  # in that order
    places = torch.empty_like(ids)
    places[order] = order[first_row] * size + torch.arange(size)
    return places


def is_first(places: Tensor, mask: Tensor) -> Tensor:
    """[B, T] true on tokens that are the first with their beginning; arguments as of `first_places`, with its result."""
    own = torch.arange(places.numel(), device=places.device).view(places.shape)
    return (places == own) & mask.bool()
