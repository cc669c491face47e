"""Plugin names -> ColossalAI Boosters, what each name needs, and with what it was tested.

Plugins are imported where they are made: importing ColossalAI takes seconds.
"""

from typing import TYPE_CHECKING, Any

import torch

from rlvr.boost.frozen import Frozen, Precision
from rlvr.boost.hybrid_check import check_hybrid
from rlvr.boost.process import silence_libraries
from rlvr.config import ParallelConfig
from rlvr.errors import UserError

if TYPE_CHECKING:
    from colossalai.booster import Booster

ZERO = ("zero1", "zero2", "zero2_cpu")
GEMINI = {"gemini": "static", "gemini_auto": "auto"}
SHARDING = ("fsdp", "3d", *GEMINI)
"""Plugins under which no process holds all weights."""


def resolve_precision(name: str, device: torch.device) -> str:
    """`auto` -> bf16 on a GPU or CPU whose matrix products are faster in it, else fp32; other names stay."""
    if name != "auto":
        return name
    has = _cpu_multiplies_bf16() if device.type == "cpu" else _accelerator_multiplies_bf16(device)
    return "bf16" if has else "fp32"


def _accelerator_multiplies_bf16(device: torch.device) -> bool:
    """True but for GPUs from before 2020, which can emulate bf16 and are slower in it than in fp32."""
    module = torch.get_device_module(device)
    # Ray's driver may have no GPU itself. Its workers look again.
    return not module.is_available() or module.is_bf16_supported(including_emulation=False)


def _cpu_multiplies_bf16() -> bool:
    """True with AVX512-BF16 or AMX, where bf16 products ran 4 to 6 times faster than fp32 (docs/speed.md)."""
    # Private names of torch; one that is gone means no.
    tests = [getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")]
    return any(test() for test in tests if test is not None)


def check_plugin(parallel: ParallelConfig, device: torch.device) -> None:
    """Refuse plugins and sizes that can't run here.

    Raises:
        UserError: says what the plugin needs and which ones work.
    """
    names = ["ddp", *ZERO, "fsdp", *(GEMINI if device.type != "cpu" else ["gemini"])]
    if parallel.plugin == "gemini_auto" and device.type == "cpu":
        raise UserError(
            "--plugin gemini_auto: it moves weights between a GPU and main memory, and needs a CUDA GPU, which this machine does "
            f"not have; plugins that work here: {', '.join(names)}"
        )
    _check_precision(parallel, device)
    if parallel.plugin == "3d":
        check_hybrid(parallel, resolve_precision(parallel.mixed_precision, device))
    elif (parallel.tp, parallel.pp, parallel.sp) != (1, 1, 1):
        raise UserError(
            f"--tp {parallel.tp}, --pp {parallel.pp} and --sp {parallel.sp} belong to --plugin 3d, not to {parallel.plugin}"
        )
    if parallel.zero_cpu_offload and parallel.plugin not in (*ZERO, "3d"):
        raise UserError(f"--zero_cpu_offload needs a ZeRO plugin (zero1, zero2), not {parallel.plugin}")
    if not 0 < parallel.dist_timeout < 1e8:
        raise UserError(
            f"--dist_timeout {parallel.dist_timeout}: give the seconds that a process may wait for the others"
        )
    if parallel.mixed_precision == "fp16" and device.type == "cpu":
        raise UserError("--mixed_precision fp16 needs a CUDA GPU; on a CPU use fp32 or bf16")


def precision_of(parallel: ParallelConfig, precision: str) -> Precision:
    """Types that models compute with under the plugin.

    Args:
        precision: fp32, bf16 or fp16, as resolved.
    """
    if precision == "fp32":
        return Precision()
    short = torch.bfloat16 if precision == "bf16" else torch.float16
    return Precision(autocast=short) if parallel.plugin == "ddp" else Precision(weights=short)


def freeze(model: torch.nn.Module, parallel: ParallelConfig, device: torch.device) -> Frozen:
    """A model that only infers, as `Boosted.freeze` makes it of a model that the settings' plugin has boosted. Collective."""
    precision = precision_of(parallel, resolve_precision(parallel.mixed_precision, device))
    return Frozen(model, precision, device, sharded=parallel.plugin in SHARDING)


def _check_precision(parallel: ParallelConfig, device: torch.device) -> None:
    """Refuse a precision that the plugin does not have."""
    allowed = {"fsdp": ("fp32", "bf16"), "gemini": ("bf16", "fp16"), "gemini_auto": ("bf16", "fp16")}.get(
        parallel.plugin
    )
    precision = resolve_precision(parallel.mixed_precision, device)
    if allowed and precision not in allowed:
        automatic = " (which is what auto chooses here)" if parallel.mixed_precision == "auto" else ""
        raise UserError(
            f"--plugin {parallel.plugin} runs in {' or '.join(allowed)}, not {precision}{automatic}: give --mixed_precision "
            f"bf16, or another plugin"
        )


def make_booster(parallel: ParallelConfig, device: torch.device, grad_clip: float) -> "Booster":
    """A Booster with the named plugin. Actor and critic each get their own.

    Args:
        parallel: which plugin and precision.
        device: device of this process.
        grad_clip: norm to clip to (0 = off); ZeRO clips inside its optimizer and must know it when it is built.
    """
    check_plugin(parallel, device)
    with silence_libraries():
        from colossalai.booster import Booster
        from colossalai.booster.plugin import LowLevelZeroPlugin

    precision = resolve_precision(parallel.mixed_precision, device)
    plugin: Any
    if parallel.plugin == "3d":
        with silence_libraries():
            from rlvr.boost.hybrid import HybridRolePlugin

            return Booster(plugin=HybridRolePlugin(parallel, precision, device, grad_clip))
    if parallel.plugin == "ddp":
        from rlvr.boost.ddp import DdpPlugin

        plugin = DdpPlugin()
        if precision != "fp16":
            return Booster(plugin=plugin)
        with silence_libraries():
            from rlvr.boost.fp16 import Fp16

        return Booster(plugin=plugin, mixed_precision=Fp16())
    if parallel.plugin == "fsdp":
        from rlvr.boost.fsdp import FsdpPlugin

        return Booster(plugin=FsdpPlugin(precision))
    if parallel.plugin in GEMINI:
        from rlvr.boost.gemini import GeminiRolePlugin

        return Booster(plugin=GeminiRolePlugin(precision, GEMINI[parallel.plugin], grad_clip))
    arguments: dict[str, Any] = {
        "precision": precision,
        "max_norm": grad_clip,
        "cpu_offload": parallel.zero_cpu_offload or parallel.plugin == "zero2_cpu",
        "overlap_communication": device.type != "cpu",
        "initial_scale": 2**16,
    }
    if parallel.plugin == "zero1":
        with silence_libraries():
            from rlvr.boost.zero import ZeroOnePlugin

        return Booster(plugin=ZeroOnePlugin(**arguments))
    return Booster(plugin=LowLevelZeroPlugin(stage=2, **arguments))


# The combinations that were tested: `rlvr doctor` prints them, docs/plugins.md says them.

VERSIONS = {"torch": "2.13.0", "transformers": "5.23.0", "colossalai": "0.5.0"}
"""Of the packages that decide whether a plugin works."""

_EVERY_SIZE = "1, 2 and 4 processes on the CPU"
TESTED = {
    "ddp": f"{_EVERY_SIZE}, fp32 and bf16",
    "zero1": f"{_EVERY_SIZE}, fp32 and bf16",
    "zero2": f"{_EVERY_SIZE}, fp32 and bf16",
    "zero2_cpu": f"{_EVERY_SIZE}, fp32 and bf16",
    "fsdp": f"{_EVERY_SIZE}, fp32 and bf16",
    "gemini": f"{_EVERY_SIZE}, bf16",
    "3d": "transformers 4.51.3, 2 processes on the CPU: tp, pp, sp and zero_stage in fp32 and bf16",
    "gemini_auto": "1 process on the CPU with made-up readings of GPU memory, bf16",
}
"""By plugin: sizes, device and precisions (tests/distributed/test_plugins.py and test_3d.py, tests/boost/test_gemini.py)."""


def tested_with(plugin: str) -> str:
    """What the plugin was tested with, in words; empty for one that has no tests of its own."""
    return f"tested with {TESTED[plugin]}" if plugin in TESTED else ""
