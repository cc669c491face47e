"""The process group: started by torchrun, or a group of one when the script is run by itself; and collectives over it.

`start` is the first thing that a run does and `stop` the last.
"""

import atexit
import gc
import json
import logging
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rlvr.boost.host import bound_compiled_kernels, keep_freed_memory, set_threads
from rlvr.boost.launcher import ends_with_launcher
from rlvr.boost.lean_import import deferred
from rlvr.boost.system import check_system
from rlvr.errors import UserError

check_system()  # at import, before libraries fail with tracebacks of their own


@dataclass(frozen=True)
class ProcessInfo:
    """This process among all: its rank, how many there are, and its device."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0


OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that say to a process which group it belongs to."""


LET_GO_S = 0.1
"""How long threads of a left group have to let go of tensors."""


def environment_alone() -> dict[str, str]:
    """The environment for a process that is to belong to no group of this one's."""
    return {name: value for name, value in os.environ.items() if name not in OF_TORCHRUN}


def start(seed: int, num_threads: int | None = None, timeout_s: float = 1800.0) -> ProcessInfo:
    """Join torchrun's process group, or make one of a single process; set threads and ColossalAI's accelerator.

    Args:
        seed: seeds Python, NumPy and torch alike in every rank; what must differ between ranks derives its own.
        num_threads: CPU threads of this process; by default the machine's cores divided among its processes.
        timeout_s: how long a process waits for the others before it gives up.
    """
    if not dist.is_initialized():
        alone = _default_environment()
        set_threads(num_threads)
        _limit_waiting(timeout_s)
        with _without_sockets() if alone else ends_with_launcher():
            _launch(seed)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return ProcessInfo(dist.get_rank(), dist.get_world_size(), local_rank, local_device())


def stop() -> None:
    """Leave the process group.

    gloo's threads let go of the tensors of a collective after those who waited for it have gone on. Where that needs the
    interpreter and it is being taken down by then, the process ends with SIGABRT ("terminate called without an active
    exception") after all its work was done. The threads are joined when nothing refers to the group any more, so cycles of
    dead models go first; what a library may hold besides (FSDP does) is given a moment.
    """
    if dist.is_initialized():
        gc.collect()
        dist.destroy_process_group()
        time.sleep(LET_GO_S)


def _default_environment() -> bool:
    """Give a process that torchrun did not start the variables of a group of one. Returns whether it did."""
    if "RANK" in os.environ:
        return False
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )
    return True


@contextmanager
def _without_sockets() -> Iterator[None]:
    """Make a process group of one without a server that the whole network could reach. ColossalAI names an address, and torch would
    listen there on every interface, for other processes that will never come."""
    join = dist.init_process_group

    def join_alone(backend: str | None = None, **_: Any) -> None:
        join(backend, store=dist.HashStore(), rank=0, world_size=1)

    loopback = {"lo", "lo0"} & {name for _, name in socket.if_nameindex()}
    if loopback:  # gloo listens, too
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
    dist.init_process_group = join_alone  # type: ignore[assignment]
    try:
        yield
    finally:
        dist.init_process_group = join


def _limit_waiting(timeout_s: float) -> None:
    """Make it the default of every process group that is made from here on: ColossalAI, which makes them, takes no time-out."""
    limit = timedelta(seconds=timeout_s)
    dist.distributed_c10d.default_pg_timeout = limit
    dist.distributed_c10d.default_pg_nccl_timeout = limit


def _launch(seed: int) -> None:
    with silence_libraries(), deferred("peft", "bitsandbytes"):
        import colossalai
        import colossalai.booster.plugin  # noqa: F401  loads the rest, while they are silenced

        if local_device().type == "cpu":
            from rlvr.boost.accelerator import install

            install()
            keep_freed_memory()
            bound_compiled_kernels()
    # ColossalAI calls collectives by names that newer torch wants to rename; nothing that a user could act on.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    warnings.filterwarnings("ignore", message="TypedStorage is deprecated", module="colossalai")
    try:
        colossalai.launch_from_torch(seed=seed, verbose=False)
    except RuntimeError as error:
        if os.environ["WORLD_SIZE"] == "1":
            raise
        raise _not_joined(error) from None
    # Threads of the group that still run while the interpreter is taken down end some processes with SIGABRT.
    atexit.register(stop)


def _not_joined(error: RuntimeError) -> UserError:
    """The processes did not find each other."""
    e = os.environ
    card = e.get("GLOO_SOCKET_IFNAME") or e.get("NCCL_SOCKET_IFNAME") or "none named"
    return UserError(
        f"rank {e['RANK']} of {e['WORLD_SIZE']} on {host_name()} could not join the others at {e['MASTER_ADDR']}:"
        f"{e['MASTER_PORT']} (network card: {card}): {str(error).strip().splitlines()[0][:300]}. See that all were started, "
        "that this address can be reached from every machine, and name the card that they share in GLOO_SOCKET_IFNAME "
        "(CPU) or NCCL_SOCKET_IFNAME (GPU)"
    )


# Collectives. With one process, or without a group, they return what they were given.


def all_reduce_sum(values: torch.Tensor) -> torch.Tensor:
    """The sum of `values` over all ranks; the same tensor when there is one rank."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def any_rank(flag: bool, device: torch.device) -> bool:
    """True if any rank says yes. Every rank gets the same answer, so all take the same branch (pitfall A24)."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return flag
    return bool(all_reduce_sum(torch.tensor([float(flag)], device=device)).item() > 0)


def max_over_ranks(value: int, device: torch.device) -> int:
    """The largest of the ranks' values."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return value
    values = torch.tensor([value], device=device)
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return int(values.item())


def barrier() -> None:
    """Wait for all ranks."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        dist.barrier()


def gather_json(value: object) -> list:
    """Every rank's value, which must be plain JSON, in rank order. Collective.

    Not `all_gather_object`, which uses pickle: a value may hold text that a model wrote.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [json.loads(json.dumps(value))]
    device = group_device()
    data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(data)], device=device))
    longest = max(int(size) for size in sizes)
    parts = [torch.zeros(longest, dtype=torch.uint8, device=device) for _ in sizes]
    dist.all_gather(parts, torch.nn.functional.pad(data, (0, longest - len(data))))
    return [json.loads(bytes(p[: int(size)].cpu().tolist())) for p, size in zip(parts, sizes, strict=True)]


# This process and its machine.


ACCELERATORS = ["cuda"]
"""Kinds of device on which models run where torch finds one; elsewhere they run on the CPU. (torch calls ROCm `cuda`, too.)"""


def local_device() -> torch.device:
    """This process's accelerator, or the CPU where there is none. Work is never placed by another rule."""
    # Not by torch.accelerator, which torch 2.5 does not have.
    found = next((kind for kind in ACCELERATORS if torch.get_device_module(kind).is_available()), None)
    if found is None:
        return torch.device("cpu")
    return torch.device(found, int(os.environ.get("LOCAL_RANK", "0")))


def group_device() -> torch.device:
    """The device that tensors must be on for the process group to pass them on: gloo takes the CPU's, every other one those of
    its accelerator alone."""
    gloo = not dist.is_initialized() or dist.get_backend() == "gloo"
    return torch.device("cpu") if gloo else local_device()


def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Silence what ColossalAI and its dependencies say about missing GPU kernels and about each other's versions."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(previous)


# `Replica`: the processes that learn one copy of the model together. Data-parallel ranks and sizes are asked here.


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
        """Number of replicas (the data-parallel size)."""
        return self.world_size // self.size

    @property
    def index(self) -> int:
        """Number of the replica that this process belongs to (its data-parallel rank). Neighbours in rank share one."""
        return self.rank // self.size

    @property
    def place(self) -> int:
        """Number of this process within its replica."""
        return self.rank % self.size

    @property
    def share(self) -> int:
        """Number of the stride of a batch that this process samples: a replica's strides together are the one that a single
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
