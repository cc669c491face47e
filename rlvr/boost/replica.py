"""Which processes learn one copy of the model together, and which sample or sum for themselves."""

from dataclasses import dataclass

import torch.distributed as dist
from torch import Tensor

from rlvr.boost.process import all_reduce_sum


@dataclass(frozen=True)
class Replica:
    """The processes that hold one copy of the learning model between them, seen from one of them.

    Responses are sampled and scored by every process for itself, whatever the layout. Learning is different: the
    processes of a replica pass the same samples through their parts of the model, so samples are divided among replicas
    and counted once for each.

    Args:
        rank: of this process among all.
        world_size: all processes.
        size: processes in a replica: 1 for data-parallel plugins, tp x pp x sp for `3d`.
        group: the processes of this replica; None where `size` is 1.
    """

    rank: int = 0
    world_size: int = 1
    size: int = 1
    group: dist.ProcessGroup | None = None

    @property
    def count(self) -> int:
        """How many replicas there are (the data-parallel size)."""
        return self.world_size // self.size

    @property
    def index(self) -> int:
        """Which replica this process belongs to (its data-parallel rank). Neighbours in rank share one."""
        return self.rank // self.size

    @property
    def place(self) -> int:
        """Which of the replica's processes this is."""
        return self.rank % self.size

    @property
    def share(self) -> int:
        """Which stride of a batch this process samples, so that a replica's strides together are the one that a single
        process in its place would have had."""
        return self.place * self.count + self.index

    def sum(self, values: Tensor) -> Tensor:
        """The sum over replicas of a tensor that is the same in all processes of a replica. Collective."""
        return all_reduce_sum(values) / self.size if self.size > 1 else all_reduce_sum(values)


def replica_of(size: int = 1) -> Replica:
    """This process's place when replicas have `size` processes; makes no process group."""
    started = dist.is_initialized()
    return Replica(dist.get_rank() if started else 0, dist.get_world_size() if started else 1, size)


def replica_with_group(size: int) -> Replica:
    """This process's replica, with a process group. Collective over all processes."""
    plain = replica_of(size)
    mine = None
    for index in range(plain.count):
        ranks = range(index * size, (index + 1) * size)
        group = dist.new_group(list(ranks))
        mine = group if index == plain.index else mine
    return Replica(plain.rank, plain.world_size, size, mine)
