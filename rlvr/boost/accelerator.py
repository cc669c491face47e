"""A complete CPU accelerator for ColossalAI.

ColossalAI's own `CpuAccelerator` raises on everything that has no meaning on a CPU (streams, device index, ...), so
`LowLevelZeroPlugin` can't be built on it. Here those calls do what they mean where there is one device and no queue of
work: nothing. `install()` makes it ColossalAI's accelerator, lets ZeRO's check of the device name pass, and keeps Gemini's
chunks where they are. (colossalai 0.5.0; `rlvr.boost.process` calls it before the process group is made.)
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import psutil
import torch
from colossalai.accelerator import set_accelerator
from colossalai.accelerator.base_accelerator import BaseAccelerator
from colossalai.accelerator.cpu_accelerator import CpuAccelerator
from colossalai.zero.gemini.chunk import chunk, manager
from colossalai.zero.low_level.low_level_optim import LowLevelZeroOptimizer


class _NoStream:
    """Stands for a stream: on a CPU work is done when the call returns."""

    def wait_stream(self, stream: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record_event(self, event: Any = None) -> Any:
        return event

    def synchronize(self) -> None: ...


class _NoEvent:
    """Stands for an event, which on a CPU has always happened."""

    def record(self, stream: Any = None) -> None: ...
    def wait(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True


class FullCpuAccelerator(CpuAccelerator):
    """ColossalAI's CPU accelerator with every call that training makes."""

    support_set_device = False

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def set_device(self, device: Any = None) -> None: ...

    def get_device_name(self, device: Any = None) -> str:
        return "cpu"

    def synchronize(self, device: Any = None) -> None: ...
    def empty_cache(self) -> None: ...

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def initial_seed(self) -> int:
        return torch.initial_seed()

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, new_state: torch.Tensor, device: Any = None) -> None:
        torch.set_rng_state(new_state)

    def memory_allocated(self, device: Any = None) -> int:
        return psutil.Process().memory_info().rss

    def reset_max_memory_allocated(self, device: Any = None) -> None: ...
    def reset_peak_memory_stats(self, device: Any = None) -> None: ...

    def Stream(self, device: Any = None, priority: int = 0, **kwargs: Any) -> _NoStream:
        return _NoStream()

    def Event(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> _NoEvent:
        return _NoEvent()

    def current_stream(self, device: Any = None) -> _NoStream:
        return _NoStream()

    def default_stream(self, device: Any = None) -> _NoStream:
        return _NoStream()

    def set_stream(self, stream_: Any) -> None: ...

    def stream(self, stream_: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def autocast(
        self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool = True
    ) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


def _check_dtypes(optimizer: LowLevelZeroOptimizer) -> None:
    """ZeRO's own sanity check less its demand for a CUDA or NPU device."""
    for group in optimizer.optim.param_groups:
        for param in group["params"]:
            if not getattr(param, "skip_zero_check", False) and param.dtype != optimizer.dtype:
                raise ValueError(f"ZeRO needs parameters of one dtype: found {param.dtype} beside {optimizer.dtype}")


class _CpuChunk(chunk.Chunk):
    """Gemini's chunk where main memory is the device: nothing is ever moved away from it. To ColossalAI, what is on a "cpu"
    was moved away, so that the device goes by another name here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shard_device = torch.device("cuda")  # its type is all that is looked at

    @property
    def device_type(self) -> str:
        return "cpu" if self.chunk_temp is not None else "cuda"

    def shard_move(self, device: torch.device, force_copy: bool = False, non_blocking: bool = False) -> None: ...


def install(accelerator: BaseAccelerator | None = None) -> None:
    """Make ColossalAI run on the CPU, or on another device that it does not know. Call before the process group is made."""
    set_accelerator(accelerator or FullCpuAccelerator())
    # The check is a method without a switch; on this accelerator its first line can only fail.
    LowLevelZeroOptimizer._sanity_checks = _check_dtypes
    chunk.Chunk = manager.Chunk = _CpuChunk
