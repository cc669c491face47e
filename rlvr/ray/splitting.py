"""Dividing prompts, responses and weights among processes, and putting them together again."""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy
import torch
from torch import Tensor

from rewards import Sample
from rlvr.data.prompts import Prompt
from rlvr.experience.scoring import Columns
from rlvr.rollout.engine import Rollout, Sampling

T = TypeVar("T")


@dataclass(frozen=True)
class Piece:
    """Some responses, and their samples for the reward functions."""

    rollouts: list[Rollout]
    samples: list[Sample]


@dataclass(frozen=True)
class Request:
    """Prompts that one rollout worker answers at once.

    What the answer is depends on what stands here and on the weights, not on the worker or on when it is asked.

    Attributes:
        prompts: one for each response; the samples of one prompt in a row.
        sampling: how responses are drawn.
        seed, first: name the randomness, as `Engine.stream` takes them.
        begun: the tokens so far of each response that goes on; empty where all begin.
    """

    prompts: Sequence[Prompt]
    sampling: Sampling
    seed: tuple[int | str, ...]
    first: int
    begun: Sequence[Rollout] = ()


BUCKET_BYTES = 64 * 2**20
"""Size of a bucket of weights, unless a single one is larger."""


@dataclass(frozen=True)
class SentWeight:
    """A weight on its way to another process.

    Attributes:
        data: its bytes: what Ray passes on without copying is arrays.
        learns: true if it has a gradient where it comes from. On that, too, depends how torch multiplies, and so how it rounds.
        checksum: CRC-32 of the bytes.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    data: numpy.ndarray
    learns: bool
    checksum: int

    @classmethod
    def of(cls, weight: Tensor) -> "SentWeight":
        data = weight.detach().to("cpu").contiguous().flatten().view(torch.uint8).numpy()
        return cls(weight.dtype, tuple(weight.shape), data, weight.requires_grad, zlib.crc32(data.data))

    @torch.no_grad()
    def load_into(self, weight: Tensor) -> None:
        """Make another process's weight the same.

        Raises:
            ValueError: the bytes are not those that were sent.
        """
        if zlib.crc32(self.data.data) != self.checksum:
            raise ValueError("a weight has changed on its way")
        weight.data = weight.data.to(self.dtype)
        # A copy, as what Ray gives can't be written to, which torch would warn of.
        weight.copy_(torch.from_numpy(self.data.copy()).view(self.dtype).view(self.shape))
        weight.requires_grad_(self.learns)


Bucket = Mapping[str, SentWeight]
"""Weights by name."""


def into_buckets(weights: Iterable[tuple[str, Tensor]], size: int = BUCKET_BYTES) -> Iterator[Bucket]:
    """Weights in buckets of about `size` bytes, one after the other: never are all of them in this process's memory twice."""
    bucket: dict[str, SentWeight] = {}
    filled = 0
    for name, weight in weights:
        sent = SentWeight.of(weight)
        if bucket and filled + sent.data.nbytes > size:
            yield bucket
            bucket, filled = {}, 0
        bucket[name] = sent
        filled += sent.data.nbytes
    if bucket:
        yield bucket


def rows_of(items: Sequence[T], rank: int, world_size: int) -> list[T]:
    """A rank's share: every `world_size`-th item, from `rank` on."""
    return list(items[rank::world_size])


def split_prompts(prompts: Sequence[Prompt], world_size: int) -> list[list[int]]:
    """For each rank the places of its prompts; a prompt that stands several times in a row stays with one rank."""
    groups: list[list[int]] = []
    for place, prompt in enumerate(prompts):
        if groups and prompts[groups[-1][-1]] is prompt:
            groups[-1].append(place)
        else:
            groups.append([place])
    return [[place for group in groups[rank::world_size] for place in group] for rank in range(world_size)]


def in_groups(prompts: Sequence[Prompt], begin: int, count: int) -> int:
    """How many of the `count` responses from `begin` on belong to prompts whose last response is among them."""
    end = begin + count
    while begin < end < len(prompts) and prompts[end].ids == prompts[end - 1].ids:
        end -= 1
    return end - begin


def merge_columns(parts: Sequence[Columns], count: int) -> Columns:
    """Columns of all `count` responses, [count, R] or [count], from those of the ranks' shares (as `rows_of` cuts them)."""
    merged: Columns = {}
    size = max(part["mask"].size(1) for part in parts)  # each rank padded to the longest of its own share
    for rank, part in enumerate(parts):
        for name, values in part.items():
            shape = (count, size) if values.dim() == 2 else (count,)
            out = merged.setdefault(name, torch.zeros(shape, dtype=values.dtype))
            place = out[rank :: len(parts)]  # a view: the rows of this rank
            (place[:, : values.size(1)] if values.dim() == 2 else place).copy_(values)
    return merged
