"""The order in which data is sampled: a pure function of a counter, so a resumed run goes on exactly where it stopped."""

import random
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Generic, TypeVar

from rlvr.errors import UserError

T = TypeVar("T")


class PromptSampler:
    """Endless batches of indices over shuffled passes.

    The stream is a permutation of all items, then another, and so on; batch k is items [k*B, (k+1)*B) of it. Every item
    comes once in each pass even where batches do not divide the data. All ranks count alike and each takes its stride
    of the batch, so the batch is the same for any number of processes.

    Args:
        size: items to sample from.
        batch_size: items of one batch, over all processes.
        seed: of the permutations.

    Attributes:
        learns: true if the order depends on what became of earlier items, which `observe` is told.

    Raises:
        UserError: nothing to sample from, or a batch without items.
    """

    learns = False

    def __init__(self, size: int, batch_size: int, seed: int) -> None:
        if size < 1:
            raise UserError("there is nothing to sample from: the data set is empty")
        if batch_size < 1:
            raise UserError(f"a batch of {batch_size} items was asked for: must be at least 1")
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.counter = 0

    def batch(self, number: int) -> list[int]:
        """Indices of batch `number` (from 0), over all processes."""
        start = number * self.batch_size
        places = (divmod(place, self.size) for place in range(start, start + self.batch_size))
        return [_permutation(self.size, self.seed, run)[offset] for run, offset in places]

    def indices(self, rank: int = 0, world_size: int = 1) -> list[int]:
        """This rank's share of the next batch; the counter moves on.

        Raises:
            UserError: the batch does not divide among the processes.
        """
        check_divides(self.batch_size, world_size)
        return self.next_batch()[rank::world_size]

    def next_batch(self) -> list[int]:
        """Indices of the next batch, over all processes; the counter moves on."""
        batch = self.batch(self.counter)
        self.counter += 1
        return batch

    def observe(self, counts: Mapping[int, tuple[int, int]]) -> None:
        """Told after each collect step how often items were answered, and answered rightly, if the sampler `learns`."""

    def metrics(self) -> dict[str, float]:
        """What there is to say of the order."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """The position, and what it is a position in."""
        return self._place()

    def _place(self) -> dict[str, int]:
        return {"counter": self.counter, "size": self.size, "batch_size": self.batch_size, "seed": self.seed}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position.

        Raises:
            UserError: the position belongs to data of another size, another batch size, or another seed.
        """
        now = self._place()
        if not isinstance(state, Mapping) or set(state) != set(now):
            raise UserError(
                f"the saved position in the data is none: it has {state!r:.200} in place of {', '.join(now)}"
            )
        changed = [
            f"{name} was {state[name]} and is {now[name]}"
            for name in ("size", "batch_size", "seed")
            if state[name] != now[name]
        ]
        if changed:
            raise UserError(
                f"the saved position belongs to other data or another order ({'; '.join(changed)}); resume with the "
                "data, batch size and seed that the run was started with"
            )
        self.counter = int(state["counter"])


def check_divides(batch_size: int, world_size: int) -> None:
    """Raise `UserError` unless a batch divides evenly among processes."""
    if batch_size % world_size:
        raise UserError(
            f"a batch of {batch_size} does not divide among {world_size} processes: give a multiple of {world_size}"
        )


@lru_cache(maxsize=32)
def _permutation(size: int, seed: int, run: int) -> tuple[int, ...]:
    """Pass number `run` over the data. Sorting by `random()`, the one sequence that Python promises never to change."""
    draw = random.Random(f"pass {run} over {size} items with seed {seed}")
    keys = [draw.random() for _ in range(size)]
    return tuple(sorted(range(size), key=keys.__getitem__))


class Loader(Generic[T]):
    """Endless batches of items, this process's share of each.

    It is its own iterator: iterating again goes on, so there is one position, and `state_dict` holds it. A batch that
    was handed out counts as used.

    Args:
        items: what to sample; the same on every process.
        sampler: the order; a loader of its own on every process.
        rank: this process.
        world_size: processes.

    Raises:
        UserError: a batch that does not divide among the processes.
    """

    def __init__(self, items: Sequence[T], sampler: PromptSampler, rank: int = 0, world_size: int = 1) -> None:
        if sampler.size != len(items):
            raise ValueError(f"the sampler is made for {sampler.size} items, not {len(items)}")
        check_divides(sampler.batch_size, world_size)
        self.items, self.sampler = items, sampler
        self.rank, self.world_size = rank, world_size

    def __iter__(self) -> Iterator[list[T]]:
        return self

    def __next__(self) -> list[T]:
        return [self.items[index] for index in self.sampler.indices(self.rank, self.world_size)]

    def state_dict(self) -> dict[str, Any]:
        """The sampler's position."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved position; see `PromptSampler.load_state_dict`."""
        self.sampler.load_state_dict(state)
