"""The state that each process has for itself, in the files `rank-0.pt`, `rank-1.pt`, ... of a checkpoint.

Rank 0 writes them all, so that a run needs no file system that its machines share until it is resumed.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rlvr.boost.process import group_device
from rlvr.checkpoint import load_tensors


def gather_states(state: Any) -> list[bytes]:
    """Every process's state, as a file holds it, on rank 0; nothing elsewhere. Collective.

    Args:
        state: nested containers of tensors and plain values.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    own = buffer.getvalue()
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [own]
    device = group_device()
    if dist.get_rank() == 0:
        return [own, *(_receive(rank, device) for rank in range(1, dist.get_world_size()))]
    data = torch.frombuffer(bytearray(own), dtype=torch.uint8).to(device)
    dist.send(torch.tensor([len(data)], device=device), 0)
    dist.send(data, 0)
    return []


def _receive(rank: int, device: torch.device) -> bytes:
    size = torch.zeros(1, dtype=torch.long, device=device)
    dist.recv(size, rank)
    data = torch.empty(int(size), dtype=torch.uint8, device=device)
    dist.recv(data, rank)
    return data.cpu().numpy().tobytes()


def write_states(states: Sequence[bytes], folder: Path) -> None:
    """Write what `gather_states` gave."""
    for rank, state in enumerate(states):
        (folder / f"rank-{rank}.pt").write_bytes(state)


def read_state(folder: Path, rank: int) -> Any:
    """The state of one process."""
    return load_tensors(folder / f"rank-{rank}.pt")
