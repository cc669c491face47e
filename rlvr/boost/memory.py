"""What the C library does with memory that is freed."""

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def keep_freed_memory() -> None:
    """Have glibc keep what is freed for what is allocated next, instead of giving it back to the system.

    By default it maps each large tensor anew and unmaps it when it is freed, and the system clears every page of the next
    one when it is first touched: 6 to 17 % of the processor time of a forward and backward pass (model M of
    benchmarks/, bf16), at the same peak. Freed memory stays with the process. Nothing happens with other C libraries.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # not Linux with glibc
        return
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
