"""The experience buffer of one process."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from rlvr.core.reductions import whiten
from rlvr.experience.experience import Experience
from rlvr.seeding import derive_seed


class ExperienceBuffer:
    """Experience in the order of collection.

    Args:
        limit: most items kept (the newest stay); 0 = no limit.
    """

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.items: list[Experience] = []

    def __len__(self) -> int:
        return len(self.items)

    def extend(self, items: Sequence[Experience]) -> None:
        """Add items; beyond the limit the oldest go."""
        self.items.extend(items)
        if self.limit:
            del self.items[: -self.limit]

    def clear(self) -> None:
        self.items = []

    def whiten_advantages(self, all_reduce: Callable[[Tensor], Tensor]) -> None:
        """Bring the advantages of all trained tokens of all processes to mean 0 and variance 1 (pitfall A13)."""
        flat = torch.cat([item.advantages for item in self.items])
        mask = torch.cat([item.mask for item in self.items])
        white = whiten(flat, mask, all_reduce=all_reduce).split([len(item.advantages) for item in self.items])
        self.items = [item.with_advantages(a) for item, a in zip(self.items, white, strict=True)]

    def mini_batches(self, size: int, epoch: int, *seed: int | str, sample: bool = False) -> Iterator[list[Experience]]:
        """The buffer's items, `size` at a time; what does not fill a mini-batch is an error of the caller's.

        The first pass keeps the order of collection, which is random in the problems already; later passes shuffle.
        Every process makes the same permutation of its own items, so that they stay in step.

        Args:
            size: items of this process in one mini-batch.
            epoch: which pass over the buffer.
            seed: the place in the run that the order belongs to; the same in every process.
            sample: draw with replacement instead.
        """
        if size < 1 or len(self) % size:
            raise ValueError(f"{len(self)} items don't divide into mini-batches of {size}")
        generator = torch.Generator().manual_seed(derive_seed("mini-batches", *seed, epoch))
        if sample:
            order = torch.randint(len(self), (len(self),), generator=generator)
        elif epoch:
            order = torch.randperm(len(self), generator=generator)
        else:
            order = torch.arange(len(self))
        for indices in order.split(size):
            yield [self.items[i] for i in indices.tolist()]

    def state_dict(self) -> list[dict[str, Tensor]]:
        return [item.tensors() for item in self.items]

    def load_state_dict(self, state: Sequence[dict[str, Tensor]]) -> None:
        self.items = [Experience(**tensors) for tensors in state]
