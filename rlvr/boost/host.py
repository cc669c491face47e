"""What a process takes of the machine that it runs on: threads, memory that was freed, compiled kernels.

Everything here is about CPUs; on a GPU, torch's own allocator and cuBLAS do this work.
"""

import ctypes
import os
from functools import cache
from typing import Any

import psutil
import torch

LOOKS = 8
"""Looks at a process's memory, between optimizer steps and phases, that show how much its work needs."""
GROWTH = 1.02
"""Of resident memory beyond that, from which on freed memory is given back."""
KERNELS = 64
"""Compiled kernels that are kept: more than a pass of a decoder uses, whose layers are alike."""
_CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def set_threads(num_threads: int | None) -> None:
    """Set the CPU threads of this process; by default the machine's cores divided among its processes."""
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    torch.set_num_threads(num_threads or max(1, _cores() // local_size))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def bound_compiled_kernels() -> None:
    """Keep `KERNELS` of the kernels that oneDNN compiles, unless the environment says how many.

    It compiles one for each shape of a bfloat16 product, half a MiB each, in half a millisecond. By default 1024 are kept,
    twice: by oneDNN, and by torch's bridge to it (ideep), which holds on to what oneDNN has let go of. Where lengths vary
    nearly all of them are never used again. Both read their variables when they multiply for the first time.
    """
    for name in _CAPACITIES:
        os.environ.setdefault(name, str(KERNELS))


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for what is allocated next, instead of giving it back to the system.

    By default it maps each large tensor anew and unmaps it when it is freed, and the system clears every page of the next
    one when it is first touched: 6 to 17 % of the processor time of a forward and backward pass (model M of
    benchmarks/, bf16), at the same peak. Nothing happens with other C libraries.
    """
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def release_spare_memory() -> None:
    """Give freed memory back to the system once the process holds more than its work needs.

    To be called between optimizer steps and phases. Tensors of one length leave gaps that those of the next don't fit
    into: without this, resident memory grows with every new length. What the work needs is the most that was resident in
    the first looks after memory was given back. Not at every call: each page that is given back is cleared by the system
    when it is next touched, which took a sixth of an episode of SmolLM2-135M.
    """
    if (libc := _glibc()) is not None and _needs.outgrown(psutil.Process().memory_info().rss):
        libc.malloc_trim(0)


class _Needs:
    """The most that was resident in the first `LOOKS` looks."""

    def __init__(self) -> None:
        self.looks, self.most = 0, 0

    def outgrown(self, resident: int) -> bool:
        """One more look: true if so much is too much, after which the looks begin anew."""
        if self.looks >= LOOKS and resident > GROWTH * self.most:
            self.looks, self.most = 0, 0
            return True
        if self.looks < LOOKS:
            self.looks, self.most = self.looks + 1, max(self.most, resident)
        return False


_needs = _Needs()


@cache
def _glibc() -> Any:
    """glibc, or None where the C library is another one."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError):
        return None
    return libc
