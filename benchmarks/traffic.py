"""Bytes that processes send each other: the least possible, what the collectives are asked to move, and what is sent.

The least that each of N processes must send, in bytes of the whole tensor, whatever the algorithm; rings reach it
(Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69,
2009; Thakur et al., "Optimization of collective communication operations in MPICH", 2005):

    reduce-scatter    (N-1)/N     each begins with a whole tensor, of which others keep all shares but one
    all-gather        (N-1)/N     each share has to reach N-1 others, and N shares make the tensor
    all-reduce       2(N-1)/N     a reduce-scatter and an all-gather
    broadcast         (N-1)/N     on average: N-1 processes receive it, and someone has to send it

What each plugin has to exchange for P weights that take `w` bytes in passes and whose gradients are summed in `g` bytes each
(ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054, section 7; FSDP: Zhao et al. 2023, arXiv:2304.11277, section 3):

    ddp      all-reduce of gradients, once an optimizer step
    zero1    reduce-scatter of gradients and all-gather of weights, once an optimizer step
    zero2    the same, but gradients once a micro-batch: they have no place to add up in
    fsdp     all-gather of the layers' weights for each forward and each backward pass, and of what is outside of them once until
             a backward pass is over; reduce-scatter of gradients once an optimizer step; all-gather of all for each rollout
"""

import os
import socket
import stat
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

PLUGINS = ("ddp", "zero1", "zero2", "fsdp")
WIDTHS = {
    ("ddp", "fp32"): (4, 4), ("zero1", "fp32"): (4, 4), ("zero2", "fp32"): (4, 4), ("fsdp", "fp32"): (4, 4),
    ("ddp", "bf16"): (4, 4), ("zero1", "bf16"): (2, 2), ("zero2", "bf16"): (2, 2), ("fsdp", "bf16"): (2, 4),
}  # fmt: skip
"""Bytes of a weight in passes and of its gradient where it is summed, by plugin and precision (docs/plugins.md)."""
COLLECTIVES = ("allreduce", "all_reduce", "reduce_scatter", "allgather", "all_gather", "broadcast")
"""Their names in torch's dispatcher begin so; what else there is makes no difference here (barriers, waiting)."""
_SENT_AT = slice(200, 208)  # tcpi_bytes_sent in Linux's struct tcp_info, since 4.19


@dataclass(frozen=True)
class Passes:
    """What one role does in an iteration.

    Attributes:
        steps: optimizer steps.
        learning: forward passes with a backward pass, over all steps.
        scoring: forward passes without one.
        rollouts: how often its whole weights are needed to generate.
    """

    steps: int
    learning: int
    scoring: int = 0
    rollouts: int = 0


def ring_bytes(operation: str, size: float, processes: int) -> float:
    """What each process sends in one collective on a tensor of `size` bytes (see above); `operation` as torch names it."""
    times = 2 if operation in ("allreduce", "all_reduce") else 1
    return times * size * (processes - 1) / processes


def least(plugin: str, precision: str, weights: int, layers: int, passes: Passes, processes: int) -> float:
    """Bytes that each process has to send for one role in an iteration.

    Args:
        weights: of the role, all of which learn.
        layers: those of them that are in decoder layers.
    """
    w, g = WIDTHS[plugin, precision]
    if plugin == "ddp":
        return ring_bytes("allreduce", g * weights * passes.steps, processes)
    times = passes.learning if plugin == "zero2" else passes.steps
    size = float(g * weights * times)
    if plugin == "fsdp":
        outside = (weights - layers) * max(passes.learning, min(passes.scoring, 1))
        size += w * (layers * (2 * passes.learning + passes.scoring) + outside + weights * passes.rollouts)
    else:
        size += w * weights * passes.steps
    return ring_bytes("allgather", size, processes)


class Asked(TorchDispatchMode):
    """Within the block: counts what torch's collectives are asked to move. They pass torch's dispatcher, whether Python or
    C++ (DDP) calls them.

    Attributes:
        bytes: of whole tensors, by operation.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.namespace in ("c10d", "_c10d_functional"):
            name = func._opname.strip("_").replace("_base", "")
            if name.startswith(COLLECTIVES):
                self.bytes[name] += max(_bytes(part) for part in (*args[:2], result))
        return result

    def as_rings(self, processes: int) -> float:
        """What each process would send if every collective sent the least."""
        return sum(ring_bytes(name, size, processes) for name, size in self.bytes.items())


def _bytes(part: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tree_leaves(part) if isinstance(t, Tensor))


def bytes_sent() -> int:
    """What this process has sent over the TCP connections that it has open, by the kernel's count (Linux)."""
    return sum(_sent(int(name)) for name in os.listdir("/proc/self/fd"))


def _sent(descriptor: int) -> int:
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return 0
    except OSError:  # it was the listing's own
        return 0
    with socket.socket(fileno=os.dup(descriptor)) as connection:
        if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
            return 0
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        return int.from_bytes(info[_SENT_AT], "little")


@dataclass(frozen=True)
class Weights:
    """Of a role.

    Attributes:
        learned: all that learn.
        layers: those of them in decoder layers.
    """

    learned: int
    layers: int


def weights_of(model: torch.nn.Module) -> Weights:
    """Of a role's module, sharded or not."""
    from rlvr.boost.fsdp import decoder_layers

    layers = sum(p.numel() for layer in decoder_layers(model) for p in layer.parameters() if p.requires_grad)
    return Weights(sum(p.numel() for p in model.parameters() if p.requires_grad), layers)
