"""`make_engine`: the engine that a run names; only that one is imported."""

import torch.distributed as dist
from transformers import PreTrainedTokenizerBase

from rlvr.rollout.available import check_engine
from rlvr.rollout.engine import Engine


def make_engine(name: str, tokenizer: PreTrainedTokenizerBase) -> Engine:
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
