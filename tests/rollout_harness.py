"""What tests of engines share: models of many families, prompts of many lengths."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from tiny_models import FAMILIES, VOCAB, tiny_model
from transformers import PreTrainedModel

from rlvr.rollout.engine import Rollout
from rlvr.rollout.hf import HFEngine

SMALL: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "max_position_embeddings": 64,
}
MORE: dict[str, tuple[str, dict[str, Any]]] = {  # class prefix and what is special
    "qwen3": ("Qwen3", {}),
    "gemma": ("Gemma", {}),
    "gemma2-sliding": ("Gemma2", {"sliding_window": 4}),
    "gemma3-sliding": ("Gemma3Text", {"sliding_window": 4}),
    "mistral-sliding": ("Mistral", {"sliding_window": 4}),
    "phi": ("Phi", {}),
    "gpt_neox": ("GPTNeoX", {"num_key_value_heads": 4}),
    "stablelm": ("StableLm", {}),
}


@dataclass(frozen=True)
class Ids:
    """A prompt as an engine sees it."""

    ids: tuple[int, ...]


def model_of(family: str) -> PreTrainedModel:
    """A random model whose tokens differ in probability, so that rounding decides nothing."""
    if family in FAMILIES:
        model = tiny_model(family)
    else:
        prefix, special = MORE[family]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = getattr(transformers, f"{prefix}Config")(**SMALL | special)
            name = prefix.removesuffix("Text")
            model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():  # sharper, so that no two tokens are nearly equally likely
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return model


def random_prompts(count: int, longest: int, seed: int = 0, groups: int = 1) -> list[Any]:
    """`count` prompts of 1 to `longest` tokens, each `groups` times."""
    g = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (count,), generator=g).tolist()
    distinct = [Ids(tuple(torch.randint(2, VOCAB, (n,), generator=g).tolist())) for n in lengths]
    return [p for p in distinct for _ in range(groups)]


def ids(rollouts: Sequence[Rollout]) -> list[list[int]]:
    return [r.response_ids.tolist() for r in rollouts]


class CountingEngine(HFEngine):
    """Counts the tokens that the model is given."""

    tokens = 0

    def _call(self, model: Any) -> Any:
        call = super()._call(model)

        def counted(model: Any, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
            self.tokens += ids.numel()
            return call(model, ids, *rest)

        for name, value in vars(call).items():
            setattr(counted, name, value)
        return counted
