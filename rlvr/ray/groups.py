"""Groups of Ray actors, one for each role, placed on the cluster's nodes.

A group starts the processes of its role (`rlvr.ray.roles`), asks all of them at once, and collects their answers. Groups that learn
are also how the checkpointer sees their roles.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlvr.checkpoint.checkpointer import WriteRole
from rlvr.checkpoint.storage import TRAINING, WEIGHTS
from rlvr.config import Config, RayConfig
from rlvr.errors import UserError
from rlvr.ray import cluster as clusters
from rlvr.ray.cluster import START_S, Cluster, collect, compare_versions, import_ray
from rlvr.ray.roles import (
    DistributedTorchRayActor,
    RayPPOActor,
    RayPPOCritic,
    RayPPOInitialModel,
    RayPPORewardModel,
)
from rlvr.ray.splitting import rows_of

PLACE_S = 60.0
"""Longest that the cluster may take to find room."""

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """The number of processes in a group, and their resources.

    Attributes:
        nodes: number of machines.
        per_node: processes on each.
        gpu: GPUs of each process, or its share of one; 0 = CPUs only.
    """

    nodes: int
    per_node: int
    gpu: float

    @property
    def world_size(self) -> int:
        return self.nodes * self.per_node

    @property
    def bundle(self) -> dict[str, float]:
        """Resources that each node must have free."""
        count = float(self.per_node)
        return {"CPU": count, "GPU": count * self.gpu} if self.gpu else {"CPU": count}


def sizes(settings: RayConfig, nodes: dict[str, int], cluster: Cluster) -> dict[str, Size]:
    """The size of each role's group and of the pool of rollout workers, if there is room for all of them.

    Args:
        settings: the settings of Ray.
        nodes: number of nodes of each role that the run has.
        cluster: gives what is free.

    Raises:
        UserError: the cluster has too few nodes, GPUs or CPUs; says what is free.
    """
    gpus = settings.num_gpus_per_node
    gpus = int(cluster.has_gpus) if gpus is None else gpus
    if gpus and settings.num_cpus_per_node != 1:
        raise UserError(
            "--num_cpus_per_node has no effect: the roles run on GPUs. Leave it out, or give --num_gpus_per_node 0"
        )
    if not gpus and settings.num_gpus_per_process != 1:
        raise UserError(
            "--num_gpus_per_process has no effect: the roles run on CPUs. Leave it out, or give --num_gpus_per_node"
        )
    each_gpu = settings.num_gpus_per_process if gpus else 0.0
    found = {role: Size(n, gpus or settings.num_cpus_per_node, each_gpu) for role, n in nodes.items()}
    for role, size in found.items():
        if size.nodes > cluster.nodes:
            raise UserError(
                f"--num_{role}_nodes {size.nodes}: the cluster has {cluster.nodes} node(s); add nodes to it, or give fewer"
            )
    if settings.num_rollout_workers:
        found["rollout"] = Size(1, settings.num_rollout_workers, each_gpu)  # on any nodes; this is only their sum
    for kind, flag in (("GPU", "--num_gpus_per_node"), ("CPU", "--num_cpus_per_node")):
        needed = {role: size.nodes * size.bundle.get(kind, 0) for role, size in found.items()}
        if sum(needed.values()) > cluster.free.get(kind, 0):
            each = ", ".join(f"{role} {count:g}" for role, count in needed.items())
            raise UserError(
                f"the roles need {sum(needed.values()):g} {kind}s ({each}), and {cluster.free.get(kind, 0):g} of the cluster's "
                f"{cluster.total.get(kind, 0):g} are free: give fewer nodes or a smaller {flag}, or free some"
            )
    return found


class PPORayActorGroup:
    """The processes of one role.

    Args:
        size: how many processes, and where.
        role: the class that runs in each.
        name: the role's, for messages.

    Raises:
        UserError: there is no room, or a process runs other code than this one.
    """

    def __init__(self, size: Size, role: type[DistributedTorchRayActor], name: str) -> None:
        ray = import_ray()
        self.name, self.world_size = name, size.world_size
        self.placement = _reserve(ray, size, name)
        self.processes: list[Any] = []
        address: tuple[str | None, int | None] = (None, None)
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy
        try:
            for rank in range(size.world_size):
                node, local = divmod(rank, size.per_node)
                kind = ray.remote(num_cpus=1, num_gpus=size.gpu)(role)
                place = strategy(placement_group=self.placement, placement_group_bundle_index=node)
                arguments = (size.world_size, rank, local, *address, size.per_node)
                self.processes.append(kind.options(scheduling_strategy=place).remote(*arguments))
                # Rank 0 has to run first: the others get its address as they start.
                if rank == 0 and size.world_size > 1:
                    [address] = collect([self.processes[0].address.remote()], self.names, START_S)
        except BaseException:
            self.close()
            raise

    @property
    def names(self) -> list[str]:
        """Names of the processes, for messages."""
        return [f"process {rank} of the {self.name}" for rank in range(len(self.processes))]

    def check_versions(self) -> None:
        """Raise `UserError` if a process runs other code than this one."""
        for versions, name in zip(self.collect(self.ask("versions")), self.names, strict=True):
            compare_versions(versions, name)

    def build(self, config: Config, *parts: Any) -> list[Any]:
        """Have all processes load the model; returns references at once."""
        return self.ask("build", config, os.getcwd(), *parts)

    def ask(self, method: str, *arguments: Any) -> list[Any]:
        """Call a method in every process; returns references."""
        return [getattr(process, method).remote(*arguments) for process in self.processes]

    def ask_each(self, method: str, arguments: Sequence[Sequence[Any]]) -> list[Any]:
        """The same, with other arguments for each rank."""
        pairs = zip(self.processes, arguments, strict=True)
        return [getattr(process, method).remote(*given) for process, given in pairs]

    def collect(self, refs: Sequence[Any]) -> list[Any]:
        """Wait for the answers of all ranks; see `rlvr.ray.cluster.collect`."""
        return collect(refs, self.names)

    def first(self, method: str, *arguments: Any) -> Any:
        """Call a method in rank 0, and wait for its answer."""
        return collect([getattr(self.processes[0], method).remote(*arguments)], self.names[:1])[0]

    def close(self) -> None:
        """End the processes and free their resources."""
        clusters.end(self.processes)
        import_ray().util.remove_placement_group(self.placement)


def _reserve(ray: Any, size: Size, name: str) -> Any:
    """Reserve a bundle of resources on each node. Raises `UserError` if there is no room within `PLACE_S`."""
    from ray.util.placement_group import placement_group, remove_placement_group

    strategy = "STRICT_SPREAD" if size.nodes > 1 else "PACK"
    placement = placement_group([size.bundle] * size.nodes, strategy=strategy)
    if not placement.wait(timeout_seconds=PLACE_S):
        remove_placement_group(placement)
        free = ray.available_resources()
        raise UserError(
            f"no room for the {name}: it needs {size.nodes} node(s) with {_words(size.bundle)} each, and free in the whole "
            f"cluster are {_words({kind: free.get(kind, 0) for kind in ('CPU', 'GPU')})}"
        )
    return placement


def _words(resources: dict[str, float]) -> str:
    return " and ".join(f"{count:g} {kind}(s)" for kind, count in resources.items())


class SavedRayActorGroup(PPORayActorGroup):
    """A role in checkpoints, a `rlvr.checkpoint.checkpointer.SavedPart`: its own processes write it, not the driver."""

    written = ""
    """A file that `save` leaves in the folder."""

    @contextmanager
    def saving(self) -> Iterator[WriteRole]:
        yield lambda folder: self._write(folder / self.written, "save", folder.absolute())

    def load(self, folder: Path) -> None:
        """Restore what `saving` wrote."""
        self.collect(self.ask("load", folder.absolute()))

    def digest(self) -> str:
        """Of the weights."""
        return str(self.collect(self.ask("digest"))[0])

    def _write(self, expected: Path, method: str, *arguments: Any) -> None:
        """Have the processes write, and check that this node sees what they wrote."""
        self.collect(self.ask(method, *arguments))
        if not expected.exists():
            raise UserError(
                f"a process on another node wrote {expected}, and this node does not see it: --save_path must lie on storage "
                "that all nodes share"
            )


class TrainableModelRayActorGroup(SavedRayActorGroup):
    """A role that learns, and a `rlvr.checkpoint.checkpointer.SavedRole`."""

    written = TRAINING

    def learn(self, batch: Sequence[Any], kl_coef: float, ptx: Sequence[Any] = ()) -> list[Any]:
        """Begin one optimizer step on a mini-batch, of which each rank gets its share, and its share of the ptx rows. Returns
        references to the ranks' metrics."""
        ranks = range(self.world_size)
        shares = [[rows_of(items, rank, self.world_size) for items in (batch, ptx)] for rank in ranks]
        return self.ask_each("learn", [(of_batch, kl_coef, of_ptx) for of_batch, of_ptx in shares])

    @contextmanager
    def exporting(self, merge: bool) -> Iterator[WriteRole]:
        yield lambda folder: self._write(folder, "export", folder.absolute(), merge)


class PPOActorRayActorGroup(TrainableModelRayActorGroup):
    """The policy's processes."""

    def __init__(self, size: Size) -> None:
        super().__init__(size, RayPPOActor, "actor")


class PPOCriticRayActorGroup(TrainableModelRayActorGroup):
    """The critic's processes."""

    def __init__(self, size: Size) -> None:
        super().__init__(size, RayPPOCritic, "critic")


class PPOInitialRayActorGroup(SavedRayActorGroup):
    """The reference model's processes."""

    written = WEIGHTS

    def __init__(self, size: Size) -> None:
        super().__init__(size, RayPPOInitialModel, "reference model")


class PPORewardRayActorGroup(PPORayActorGroup):
    """The neural reward model's processes."""

    def __init__(self, size: Size) -> None:
        super().__init__(size, RayPPORewardModel, "reward model")
