"""Batches of supervised examples, and packing: rows that several examples share without seeing each other.

Where the position ids of a row begin anew, transformers (4.53 and later) lets no token see beyond that place: attention is
block-diagonal, and with FlashAttention the row goes to the kernel for variable lengths. Not every architecture takes part,
so whether a model does is tried out and not guessed. Models that run without padding anyway (`rlvr.models.padding_free`)
gain nothing by sharing rows.
"""

import inspect
from collections.abc import Sequence
from dataclasses import replace

import torch

from rlvr.data.examples import Example
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.batch import SequenceBatch, first_places, is_first

IDLE = Example((0, 0), 2)
"""Learns nothing. A process that has no more rows runs it while others have some: every process makes the same passes."""


def collate_examples(rows: Sequence[Sequence[Example]], pad_id: int = 0) -> SequenceBatch:
    """Lay out B rows of one or more examples each as a right-padded `SequenceBatch`; its responses are the learned tokens.

    Position ids are 0, 1, 2, ... within each example.
    """
    size = max(sum(len(example.ids) for example in row) for row in rows)
    input_ids = torch.full((len(rows), size), pad_id, dtype=torch.long)
    position_ids = torch.zeros_like(input_ids)
    lengths = torch.zeros(len(rows), dtype=torch.long)
    learned: list[list[int]] = []
    for number, row in enumerate(rows):
        end, columns = 0, []
        for example in row:
            start, end = end, end + len(example.ids)
            input_ids[number, start:end] = torch.tensor(example.ids)
            # They begin at 0 again, to the end of the row: the next example overwrites what is behind this one.
            position_ids[number, start:] = torch.arange(size - start)
            columns += [start + place for place in example.learned]
        lengths[number] = end
        learned.append(columns)
    counts = torch.tensor([len(columns) for columns in learned])
    mask = torch.arange(max(1, int(counts.max())))[None, :] < counts[:, None]  # [B, R]
    index = torch.ones_like(mask, dtype=torch.long)
    index[mask] = torch.tensor([column for columns in learned for column in columns], dtype=torch.long)
    real = torch.arange(size)[None, :] < lengths[:, None]
    shared = any(len(row) > 1 for row in rows)
    first = None if shared else first_places(input_ids, real)
    return SequenceBatch(
        input_ids=input_ids,
        attention_mask=real.long(),
        position_ids=position_ids,
        response_index=index,
        response_mask=mask,
        right_padded=True,
        tokens=int(lengths.sum()) if first is None else int(is_first(first, real).sum()),
        first_places=first,
        shared_rows=shared,
    )


def pack_by_length(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Put examples into rows of at most `capacity` tokens, longest first, each into the first row with room for it.

    Returns:
        Indices of the examples of each row. No more than 11/9 of the least number of rows, and one (Johnson 1973).

    Raises:
        ValueError: an example longer than `capacity`.
    """
    if lengths and max(lengths) > capacity:
        raise ValueError(f"an example of {max(lengths)} tokens does not fit into a row of {capacity}")
    rows: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        fits = next((row for row, left in enumerate(room) if left >= lengths[index]), None)
        if fits is None:
            rows.append([index])
            room.append(capacity - lengths[index])
        else:
            rows[fits].append(index)
            room[fits] -= lengths[index]
    return rows


@torch.no_grad()
def keeps_packed_examples_apart(actor: Actor) -> bool:
    """True if examples in one row don't see each other, tried on ten tokens: what stands before an example moves its
    logprobs less than a twentieth of what it moves them where the two are one text. (Not by nothing at all: matrix
    products round otherwise wherever their inputs happen to lie in memory.)"""
    if "position_ids" not in inspect.signature(actor.model.forward).parameters:
        return False
    ids = tuple(i % actor.model.config.get_text_config().vocab_size for i in range(5))
    apart = _influence(actor, collate_examples([[Example(ids, 1), Example(ids, 1)]]))
    together = _influence(actor, collate_examples([[Example(ids + ids, 1)]]))
    return apart < 0.05 * together


def _influence(actor: Actor, batch: SequenceBatch) -> float:
    """The most that the last four logprobs of a row move when its first five tokens change."""
    batch = batch.to(next(actor.parameters()).device)
    changed = batch.input_ids.clone()
    vocabulary = actor.model.config.get_text_config().vocab_size
    changed[0, :5] = (changed[0, :5] + vocabulary // 2) % vocabulary
    was_training = actor.training
    actor.eval()
    results = [actor(b, with_entropy=False).logprobs[0, -4:] for b in (batch, replace(batch, input_ids=changed))]
    actor.train(was_training)
    return float((results[0] - results[1]).abs().max())


def check_packing(actor: Actor) -> None:
    """Raise `UserError` unless packed examples don't see each other in this model."""
    if not keeps_packed_examples_apart(actor):
        raise UserError(
            f"--packing: {type(actor.model).__name__} with {actor.model.config._attn_implementation} attention lets packed "
            "examples see each other (it must take position ids, and transformers must be 4.53 or newer); leave --packing "
            "out: passes are cut by length, which saves most of the padding too"
        )
