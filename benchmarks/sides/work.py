"""The work that both sides do: random Llama models, random prompts, and how long responses get.

Imported by both sides, so it needs torch and transformers only.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

PAD, EOS = 0, 1
PROMPTS, PROMPT_TOKENS, MINI_BATCHES = 64, 48, 4
GROUP = 8  # responses to one prompt, for GRPO
SIZES = {
    # vocabulary, hidden, intermediate, layers, heads: 3M and 42M parameters
    "S": (512, 192, 512, 6, 6),
    "M": (32768, 512, 1408, 8, 8),
}


@dataclass(frozen=True)
class Work:
    """What one iteration is.

    Attributes:
        size: S or M.
        response_tokens: cap of a response.
        lengths: "fixed": every response has that many; "realistic": the end token may come, a third of the way on average.
        precision: fp32 or bf16.
        recipe: ppo (one response to a prompt, critic and reference) or grpo (groups of `GROUP`, neither).
        seed: of weights and prompts.
    """

    size: str = "S"
    response_tokens: int = 64
    lengths: str = "fixed"
    precision: str = "fp32"
    recipe: str = "ppo"
    seed: int = 0


def make_model(work: Work, layers: int | None = None) -> Any:
    """A random causal LM whose end token is as likely as the work asks; the padding token never comes."""
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(llama_config(work, LlamaConfig, layers))
    head = nn.Linear(model.config.hidden_size, model.config.vocab_size, bias=True)
    head.weight = model.model.embed_tokens.weight
    with torch.no_grad():
        head.bias.zero_()
        head.bias[PAD] = -1e4
        mean = work.response_tokens / 3
        head.bias[EOS] = -1e4 if work.lengths == "fixed" else math.log(model.config.vocab_size / mean)
    head.bias.requires_grad_(False)
    model.lm_head = head
    model.generation_config.eos_token_id = EOS
    model.generation_config.pad_token_id = PAD
    return model


def llama_config(work: Work, kind: Any, layers: int | None = None) -> Any:
    """Of the work's size; the seed is set, so that weights made next are always the same."""
    vocabulary, hidden, intermediate, depth, heads = SIZES[work.size]
    torch.manual_seed(work.seed)
    return kind(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers or depth,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=1024,
        pad_token_id=PAD,
        bos_token_id=2,
        eos_token_id=EOS,
        tie_word_embeddings=True,
    )


def make_backbone(work: Work) -> Any:
    """The decoder of the same size, for the critic."""
    from transformers import LlamaConfig, LlamaModel

    return LlamaModel(llama_config(work, LlamaConfig, None))


def prompts(work: Work, iteration: int) -> list[list[int]]:
    """The prompts of one iteration, each once: random ids above the special ones."""
    generator = torch.Generator().manual_seed(work.seed * 1000 + iteration)
    ids = torch.randint(3, SIZES[work.size][0], (PROMPTS, PROMPT_TOKENS), generator=generator)
    count = PROMPTS // GROUP if work.recipe == "grpo" else PROMPTS
    return [row.tolist() for row in ids[:count]]


def copy_of(model: Any) -> Any:
    """A frozen twin, for the reference."""
    return copy.deepcopy(model).eval().requires_grad_(False)
