"""`--memory_limit`: passes that are cut until the memory estimate stays below it."""

import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch

from rlvr.boost.plugins import resolve_precision
from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.errors import UserError
from rlvr.memory.estimate import Estimate, estimate, estimate_supervised, micro_batch_rows, row_tokens, rows_of_a_pass
from rlvr.memory.footprint import kept_footprints
from rlvr.memory.usage import readable

AnyConfig = Config | SFTConfig | RewardTrainingConfig

RUNTIME = {True: 2**29, False: 3 * 2**28}
"""Bytes that a process takes before it has a model, by whether it works on a GPU: CUDA's context there, and in main memory
interpreter, libraries and compiled kernels."""
GAPS = {True: 0.2, False: 0.65}
"""Bytes of gaps in the heap for each byte of activations, by the same. glibc fits no aligned tensor into the gap that one of its size has
left, so what a layer frees stays empty while the next layers run: SmolLM2-135M leaves 0.5 to 0.65 in a pass, in fp32 and bf16, with LoRA
and without. Not measured on GPUs."""
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def memory_bytes(text: str) -> int:
    """Bytes of `8GB`, `8GiB`, `8g`, `500 MB`, `1.5G`: units are powers of 1024, as memory is sold.

    Raises:
        UserError: it is no such text.
    """
    found = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([KMGT]?)I?B?\s*", text.upper())
    if found is None or float(found[1]) == 0:
        raise UserError(f"--memory_limit {text}: give a number with a unit, such as 8GB or 500MB")
    return int(float(found[1]) * _UNITS[found[2]])


def needed_bytes(memory: Estimate, on_gpu: bool) -> int:
    """What a process takes by this estimate, with what is no tensor."""
    gaps = GAPS[on_gpu]
    return RUNTIME[on_gpu] + max(phase.peak + int(gaps * phase.passing["activations"]) for phase in memory.phases)


def fit_memory(config: AnyConfig, world_size: int, device: torch.device) -> str | None:
    """Set `micro_batch_tokens` so that the estimate stays below `--memory_limit`, if there is one.

    Only passes of learning are cut, which changes no result but by rounding. The cut depends on settings and precision alone:
    all processes, and a run that goes on, make the same.

    Returns:
        What was done, in words; None if nothing had to be.

    Raises:
        UserError: no cut is small enough; says what would fit.
    """
    text = config.train.memory_limit
    if text is None:
        return None
    limit, on_gpu = memory_bytes(text), device.type != "cpu"
    precision = resolve_precision(config.parallel.mixed_precision, device)

    def needs(changed: AnyConfig) -> int:
        if isinstance(changed, Config):
            return needed_bytes(estimate(changed, world_size, precision, on_gpu), on_gpu)
        return needed_bytes(estimate_supervised(changed, world_size, precision, on_gpu), on_gpu)

    with kept_footprints():  # each trial asks for the same models
        return _cut(config, world_size, text, limit, needs)


def _cut(config: AnyConfig, world_size: int, text: str, limit: int, needs: Callable[[AnyConfig], int]) -> str | None:
    if needs(config) <= limit:
        return None
    tokens = row_tokens(config)
    now = (
        micro_batch_rows(config, world_size, tokens)
        if isinstance(config, Config)
        else rows_of_a_pass(config, world_size)
    )

    def cut_to(rows: int) -> AnyConfig:
        changed = deepcopy(config)
        changed.train.micro_batch_tokens = rows * tokens
        return changed

    rows = _most(now - 1, lambda rows: needs(cut_to(rows)) <= limit)
    if rows == 0:
        raise UserError(_what_would_fit(cut_to(1), text, limit, needs))
    config.train.micro_batch_tokens = rows * tokens
    return f"--memory_limit {text}: passes of at most {rows * tokens} tokens (--micro_batch_tokens), instead of {now * tokens}"


def _most(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `most` that fits, where all smaller ones do too; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _what_would_fit(config: AnyConfig, text: str, limit: int, needs: Callable[[AnyConfig], int]) -> str:
    """The message for settings that don't fit with passes of one row either."""
    least = needs(config)
    message = f"--memory_limit {text}: the run needs about {readable(least)} even if it learns from one row at a time. "
    changed: Any = deepcopy(config)
    changes = []
    for flag, change in _smaller(changed):
        change()
        changes.append(flag())
        if needs(changed) <= limit:
            return message + f"It would fit with {' '.join(changes)}"
    return (
        message
        + f"With {' '.join(changes)} it still needs {readable(needs(changed))}: take a smaller model, or LoRA (docs/lora.md)"
    )


def _smaller(config: Any) -> list[tuple[Callable[[], str], Callable[[], None]]]:
    """Changes of settings that take less memory, the cheapest first: (the flags in words, the change)."""
    changes: list[tuple[Callable[[], str], Callable[[], None]]] = []
    if isinstance(config, Config):
        r = config.rollout

        def fewer() -> None:
            r.generation_batch_size = max(r.num_generations, min(8, r.generation_batch_size))

        changes.append((lambda: f"--generation_batch_size {r.generation_batch_size}", fewer))

    def recompute() -> None:
        config.model.grad_checkpoint = True

    changes.append((lambda: "--grad_checkpoint", recompute))
    return changes
