"""Refusals of `--plugin 3d`: versions, sizes and models with which ColossalAI's tensor and pipeline parallelism does not
work, or was not tested here. Free of ColossalAI, whose import takes seconds, because settings are checked with it.
"""

import os
from importlib.metadata import version
from typing import Any

import torch.distributed as dist

from rlvr.config import ParallelConfig
from rlvr.errors import UserError

TRANSFORMERS = "4.51"
"""Whose models ColossalAI 0.5.0 knows how to cut up."""
FAMILIES = ("llama", "mistral", "qwen2")
"""Families (`model_type`) whose losses, gradients and weights under 3d are plain PyTorch's (tests/distributed/test_3d.py)."""
OTHERWISE = "take --plugin ddp, zero1, zero2 or fsdp, which run any model"
_REFUSED = {
    "ring": "gave wrong gradients (ColossalAI 0.5.0 on two processes: norms 7 to 10 % off)",
    "ring_attn": "needs FlashAttention's CUDA kernels, with which nothing was tested here",
}


def check_hybrid(parallel: ParallelConfig, precision: str) -> None:
    """Refuse what `3d` can't do here.

    Args:
        parallel: the settings.
        precision: fp32, bf16 or fp16.

    Raises:
        UserError: says what was given, what is allowed and what to do.
    """
    check_transformers()
    for flag in ("tp", "pp", "sp"):
        if getattr(parallel, flag) < 1:
            raise UserError(f"--{flag} {getattr(parallel, flag)}: must be at least 1")
    _check_sequence_parallelism(parallel)
    if parallel.zero_stage and precision == "fp32":
        raise UserError(
            f"--zero_stage {parallel.zero_stage} with --plugin 3d works in bf16 and fp16 only (ColossalAI asserts it): give "
            "--mixed_precision bf16, or --zero_stage 0"
        )
    if parallel.zero_stage == 2 and parallel.pp > 1:
        raise UserError(
            "--zero_stage 2 with --pp above 1 would reduce gradients after every micro-batch; ColossalAI refuses it: give "
            "--zero_stage 1"
        )
    if parallel.zero_cpu_offload and not parallel.zero_stage:
        raise UserError("--zero_cpu_offload with --plugin 3d needs --zero_stage 1 or 2")
    _check_world(parallel)


def check_transformers() -> None:
    """Raise `UserError` unless the transformers that is installed is one that ColossalAI shards."""
    found = version("transformers")
    if not found.startswith(f"{TRANSFORMERS}."):
        raise UserError(
            f"--plugin 3d (tensor and pipeline parallelism): ColossalAI cuts up the models of transformers {TRANSFORMERS}, and "
            f"{found} is installed. Make an environment of its own for it, in a checkout (docs/tensor_and_pipeline.md): uv venv "
            ".venv-3d && uv pip install --config-file .ci/transformers-4.51.toml --python .venv-3d -e . torch==2.13.0 transformers==4.51.3; or "
            f"{OTHERWISE} with any transformers"
        )


def _check_sequence_parallelism(parallel: ParallelConfig) -> None:
    if not parallel.enable_sequence_parallelism:
        if parallel.sp > 1:
            raise UserError(f"--sp {parallel.sp} has no effect without --enable_sequence_parallelism; give it too")
        return
    mode = parallel.sp_mode
    if mode in _REFUSED:
        raise UserError(f"--sp_mode {mode} {_REFUSED[mode]}; take split_gather (with --tp) or all_to_all (with --sp)")
    if mode == "split_gather":
        if parallel.tp == 1 or parallel.sp > 1:
            raise UserError(
                f"--sp_mode {mode} divides the sequence among the processes of tensor parallelism: it needs --tp above 1 "
                f"(given: {parallel.tp}) and --sp 1 (given: {parallel.sp})"
            )
    elif parallel.sp == 1:
        raise UserError(f"--sp_mode {mode} divides the sequence among --sp processes: give --sp 2 or more")


def _check_world(parallel: ParallelConfig) -> None:
    size = parallel.replica_size
    world = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
    if world % size:
        raise UserError(
            f"--tp {parallel.tp} x --pp {parallel.pp} x --sp {parallel.sp} take {size} processes for one model, which does "
            f"not divide the {world} there are: start a multiple of {size} (torchrun --nproc_per_node {size}), or choose "
            f"sizes whose product divides {world}"
        )


def check_role(role: Any, tp: int, pp: int, sp: int = 1) -> None:
    """Refuse an `Actor` or `Critic` that can't be cut up so.

    Args:
        role: not cut up yet.
        tp, pp: processes of tensor parallelism, stages.
        sp: processes among which `all_to_all` divides the attention's heads.

    Raises:
        UserError: another family than those that are tested, LoRA adapters, a head that is more than a matrix, another
            attention than PyTorch's, or sizes that don't divide.
    """
    config = role.decoder.config.get_text_config()
    if config.model_type not in FAMILIES:
        raise UserError(
            f"--plugin 3d: {type(role.pretrained).__name__} is of the family {config.model_type!r}; those that ColossalAI's sharding "
            f"was tested with here are {', '.join(FAMILIES)}. Take one of them, or {OTHERWISE}"
        )
    if role.has_adapter:
        raise UserError(
            f"--plugin 3d with LoRA: ColossalAI cuts up plain layers only; train all weights, or {OTHERWISE}"
        )
    if not getattr(role, "has_plain_head", True):
        raise UserError(
            f"--plugin 3d: the head of {type(role.pretrained).__name__} does more than multiply by a matrix, which is all that "
            f"can be cut up; {OTHERWISE}"
        )
    if config._attn_implementation not in ("sdpa", "eager"):
        raise UserError(
            f"--plugin 3d is tested with PyTorch's attention only, not with {config._attn_implementation}: leave "
            f"--use_flash_attn out, or {OTHERWISE}"
        )
    for name, parts in (("num_attention_heads", tp * sp), ("num_key_value_heads", tp * sp), ("intermediate_size", tp)):
        size = getattr(config, name, None)
        if size is not None and size % parts:
            flags = f"--tp {tp}" if parts == tp else f"--tp {tp} x --sp {sp} = {parts}"
            raise UserError(f"{flags} does not divide the model's {name} {size}; choose a divisor of it")
    if config.num_hidden_layers < pp:
        raise UserError(f"--pp {pp} is more than the model's {config.num_hidden_layers} layers; choose at most so many")
