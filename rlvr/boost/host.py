"""What a process takes of the machine that it runs on: threads, memory that was freed, compiled kernels.

Everything here is about CPUs; on a GPU, torch's own allocator and cuBLAS do this work.
"""

import ctypes
import os
from functools import cache
from typing import Any

import torch

SPARE_BYTES = 2**30
"""Freed memory that a process keeps between optimizer steps, for the next one to use."""
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
    """Give freed memory back to the system if it is more than `SPARE_BYTES`.

    To be called between optimizer steps and phases. Tensors of one length leave gaps that those of the next don't fit
    into: without this, resident memory grows with every new length. A step has to touch its memory anew after it, which
    takes far less time than to map each tensor.
    """
    libc = _glibc()
    if libc is not None and libc.mallinfo2().fordblks > SPARE_BYTES:
        libc.malloc_trim(0)


class _HeapUse(ctypes.Structure):
    """glibc's `struct mallinfo2`; `fordblks` are the free bytes of the heap."""

    _names = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    _fields_ = [(name, ctypes.c_size_t) for name in _names]  # noqa: RUF012


@cache
def _glibc() -> Any:
    """glibc, or None where the C library is another one, or older than 2.33."""
    try:
        libc = ctypes.CDLL("libc.so.6")
        libc.mallinfo2.restype = _HeapUse
    except (OSError, AttributeError):
        return None
    return libc
