"""The process group: started by torchrun, or a group of one when the script is run by itself."""

import atexit
import logging
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from rlvr.boost.memory import keep_freed_memory
from rlvr.errors import UserError


@dataclass(frozen=True)
class ProcessInfo:
    """Where this process stands: its rank, how many there are, and its device."""

    rank: int
    world_size: int
    local_rank: int
    device: torch.device

    @property
    def is_main(self) -> bool:
        return self.rank == 0


def start(seed: int, num_threads: int | None = None, timeout_s: float = 1800.0) -> ProcessInfo:
    """Join torchrun's process group, or make one of a single process; set threads and ColossalAI's accelerator.

    Args:
        seed: seeds Python, NumPy and torch alike in every rank; what must differ between ranks derives its own.
        num_threads: CPU threads of this process; by default the machine's cores divided among its processes.
        timeout_s: how long a process waits for the others before it gives up.
    """
    if not dist.is_initialized():
        _default_environment()
        set_threads(num_threads)
        _limit_waiting(timeout_s)
        _launch(seed)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    return ProcessInfo(dist.get_rank(), dist.get_world_size(), local_rank, local_device())


def local_device() -> torch.device:
    """This process's GPU, or the CPU where there is none."""
    cpu = torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if torch.cuda.is_available() else cpu


def set_threads(num_threads: int | None) -> None:
    """Set the CPU threads of this process; by default the machine's cores divided among its processes."""
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(num_threads or max(1, _cores() // local_size))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _default_environment() -> None:
    """Give a process that torchrun did not start the variables of a group of one, on a free port."""
    if "RANK" in os.environ:
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )


def _limit_waiting(timeout_s: float) -> None:
    """Make it the default of every process group that is made from here on. ColossalAI, which makes them, takes none."""
    limit = timedelta(seconds=timeout_s)
    dist.distributed_c10d.default_pg_timeout = limit
    dist.distributed_c10d.default_pg_nccl_timeout = limit


def _launch(seed: int) -> None:
    with quiet():
        import colossalai
        import colossalai.booster.plugin  # noqa: F401  loads the rest, while it is quiet

        if not torch.cuda.is_available():
            from rlvr.boost.accelerator import install

            install()
            keep_freed_memory()
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


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what ColossalAI and its dependencies say about missing GPU kernels and about each other's versions."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(previous)


def host_name() -> str:
    """This machine's name."""
    return socket.gethostname()


def group_device() -> torch.device:
    """Where tensors must be for the process group to pass them on."""
    nccl = dist.is_initialized() and dist.get_backend() == "nccl"
    return torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")


def stop() -> None:
    """Leave the process group."""
    if dist.is_initialized():
        dist.destroy_process_group()


def all_reduce_sum(values: torch.Tensor) -> torch.Tensor:
    """The sum of `values` over all ranks; the same tensor when there is one rank."""
    if dist.is_initialized() and dist.get_world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def any_rank(flag: bool, device: torch.device) -> bool:
    """Whether any rank says yes. Every rank gets the same answer, so all take the same branch (pitfall A24)."""
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
