"""Experience of the processes that learn together, brought together."""

import io
from collections.abc import Sequence

import torch
import torch.distributed as dist

from rlvr.boost.replica import Replica
from rlvr.experience.experience import Experience


def pool(items: Sequence[Experience], replica: Replica, group_size: int = 1) -> list[Experience]:
    """What all processes of the replica have collected, the same list in each of them. Collective within the replica.

    Args:
        items: this process's, as many in each of them.
        replica: which processes.
        group_size: responses to a prompt, which stand together and stay so. The processes take turns by prompts, which
            undoes how a batch was divided among them: the order is the one that a single process would have had.
    """
    if replica.group is None:
        return list(items)
    parts = [_load(part) for part in _gather(_save(items), replica.group)]
    groups = [[part[i : i + group_size] for i in range(0, len(part), group_size)] for part in parts]
    return [item for turn in zip(*groups, strict=True) for group in turn for item in group]


def _save(items: Sequence[Experience]) -> bytes:
    stream = io.BytesIO()
    torch.save([{name: tensor.cpu() for name, tensor in item.tensors().items()} for item in items], stream)
    return stream.getvalue()


def _load(data: bytes) -> list[Experience]:
    return [Experience(**tensors) for tensors in torch.load(io.BytesIO(data), weights_only=True)]


def _gather(data: bytes, group: dist.ProcessGroup) -> list[bytes]:
    """Every process's bytes, in the group's order."""
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend() == "nccl" else torch.device("cpu")
    own = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(device)
    sizes = [torch.zeros(1, dtype=torch.long, device=device) for _ in range(group.size())]
    dist.all_gather(sizes, torch.tensor([len(data)], device=device), group=group)
    longest = max(int(size) for size in sizes)
    parts = [torch.empty(longest, dtype=torch.uint8, device=device) for _ in sizes]
    dist.all_gather(parts, torch.nn.functional.pad(own, (0, longest - len(data))), group=group)
    return [part[: int(size)].cpu().numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]
