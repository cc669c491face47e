"""When each setting of plugins and parallelism is read; the same in every kind of run."""

from typing import Any

from rlvr.checks.unread import Rule


def _is_3d(c: Any) -> bool:
    return c.parallel.plugin == "3d"


def _of_3d(c: Any) -> str:
    return f" with --plugin {c.parallel.plugin}: it belongs to --plugin 3d"


def _without_3d(c: Any) -> str:
    return "Leave it out; zero1 and zero2 are plugins of their own"


PARALLEL = (
    Rule("parallel", ("tp", "pp", "sp"), _is_3d, _of_3d, _without_3d, off=(1,)),
    Rule("parallel", ("zero_stage", "enable_sequence_parallelism"), _is_3d, _of_3d, _without_3d, off=(0, False)),
    Rule("parallel", ("sp_mode",), _is_3d, _of_3d, _without_3d),
    Rule(
        "parallel",
        ("sp_mode",),
        lambda c: c.parallel.enable_sequence_parallelism,
        lambda c: " without --enable_sequence_parallelism",
    ),
    Rule(
        "parallel",
        ("zero_cpu_offload",),
        lambda c: c.parallel.plugin.startswith("zero") or c.parallel.plugin == "3d",
        lambda c: f" with --plugin {c.parallel.plugin}",
        lambda c: "Leave it out, or take a ZeRO plugin: zero1, zero2",
        off=(False,),
    ),
)
