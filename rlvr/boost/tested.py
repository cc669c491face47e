"""What each plugin was tested with: `rlvr doctor` prints it, docs/plugins.md says it."""

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


def described(plugin: str) -> str:
    """In words; empty for a plugin that has no tests of its own."""
    return f"tested with {TESTED[plugin]}" if plugin in TESTED else ""
