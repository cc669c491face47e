"""Dividing prompts and responses among the processes of a role, and putting their columns together again."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from rewards import Sample
from rlvr.data.prompts import Prompt
from rlvr.experience.scoring import Columns
from rlvr.rollout.engine import Rollout

T = TypeVar("T")


@dataclass(frozen=True)
class Piece:
    """Some responses, and their samples for the reward functions."""

    rollouts: list[Rollout]
    samples: list[Sample]


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
