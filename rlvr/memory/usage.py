"""The memory that this process has taken, for the curves of a run."""

import sys
from pathlib import Path

import torch

from rlvr.boost.process import local_device

_STATUS = Path("/proc/self/status")
_FIELDS = {"VmRSS:": "memory/rss_bytes", "VmHWM:": "memory/rss_peak_bytes"}


def memory_use() -> dict[str, float]:
    """The memory that this process holds, in bytes.

    Returns:
        `memory/rss_bytes`, resident now (on Linux), and `memory/rss_peak_bytes`, the most since the process began. On a GPU
        also `memory/device_bytes`, the tensors there now, and `memory/device_peak_bytes`, the most since the process began.
    """
    found = _resident()
    device = local_device()
    if device.type != "cpu":
        module = torch.get_device_module(device)
        found["memory/device_bytes"] = float(module.memory_allocated(device))
        found["memory/device_peak_bytes"] = float(module.max_memory_allocated(device))
    return found


def _resident() -> dict[str, float]:
    if not _STATUS.exists():
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return {"memory/rss_peak_bytes": float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)}
    # Not `getrusage` here: a child begins with the peak of the process that started it.
    fields = (line.split() for line in _STATUS.read_text().splitlines())
    return {_FIELDS[words[0]]: 1024.0 * int(words[1]) for words in fields if words and words[0] in _FIELDS}


def readable(size: float) -> str:
    """Bytes as a person reads them: `1.5 GiB`."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
