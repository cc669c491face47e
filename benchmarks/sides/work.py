"""The work that both sides do: random Llama models with random prompts, or a real model with real text (`real.py`).

Imported by both sides, so it needs torch and transformers only.
"""

import copy
import json
import math
import random
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

PAD, EOS = 0, 1
PROMPTS, PROMPT_TOKENS, MINI_BATCHES = 64, 48, 4
GROUP = 8  # responses to one prompt, for GRPO
SFT_BATCH = 16  # rows of an optimizer step of supervised fine-tuning
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
        recipe: ppo (one response to a prompt, critic and reference), grpo (groups of `GROUP`, neither), or sft.
        seed: of weights and prompts.
        folder: of a real model, its tokenizer and its rows; `size` is then its name, and responses end as they come.
    """

    size: str = "S"
    response_tokens: int = 64
    lengths: str = "fixed"
    precision: str = "fp32"
    recipe: str = "ppo"
    seed: int = 0
    folder: str = ""


@dataclass(frozen=True)
class SpecialIds:
    """What stands in padding, and what ends a response."""

    pad: int = PAD
    end: int = EOS


def special_ids(work: Work) -> SpecialIds:
    """Of the work's model."""
    if not work.folder:
        return SpecialIds()
    tokenizer = read_tokenizer(work.folder)
    return SpecialIds(tokenizer.pad_token_id, tokenizer.eos_token_id)


@cache
def read_tokenizer(folder: str) -> Any:
    """A real model's, which pads on the left."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, padding_side="left")


@cache
def rows_of(folder: str) -> list[dict[str, str]]:
    """Prompts and completions of a real model's work."""
    return json.loads((Path(folder) / "rows.json").read_text())


def vocabulary(work: Work) -> int:
    """Tokens that the work's model knows."""
    if not work.folder:
        return SIZES[work.size][0]
    return int(json.loads((Path(work.folder) / "config.json").read_text())["vocab_size"])


def make_model(work: Work, layers: int | None = None) -> Any:
    """A random causal LM whose end token is as likely as the work asks; the padding token never comes."""
    from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

    if work.folder:
        real = AutoModelForCausalLM.from_pretrained(work.folder, dtype=torch.float32)
        ids = special_ids(work)
        real.generation_config.eos_token_id, real.generation_config.pad_token_id = ids.end, ids.pad
        return real
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
    from transformers import AutoModel, LlamaConfig, LlamaModel

    if work.folder:
        return AutoModel.from_pretrained(work.folder, dtype=torch.float32)
    return LlamaModel(llama_config(work, LlamaConfig, None))


def prompts(work: Work, iteration: int) -> list[list[int]]:
    """The prompts of one iteration, each once: random ids above the special ones, or problems drawn by the seed."""
    if work.folder:
        tokenizer = read_tokenizer(work.folder)
        return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in prompt_texts(work, iteration)]
    generator = torch.Generator().manual_seed(work.seed * 1000 + iteration)
    ids = torch.randint(3, SIZES[work.size][0], (PROMPTS, PROMPT_TOKENS), generator=generator)
    return [row.tolist() for row in ids[: prompt_count(work)]]


def prompt_texts(work: Work, iteration: int) -> list[str]:
    """`prompts` of a real model as text."""
    drawn = random.Random(work.seed * 1000 + iteration).sample(rows_of(work.folder), prompt_count(work))
    return [row["prompt"] for row in drawn]


def prompt_count(work: Work) -> int:
    """Different prompts of an iteration."""
    return PROMPTS // GROUP if work.recipe == "grpo" else PROMPTS


def copy_of(model: Any) -> Any:
    """A frozen twin, for the reference."""
    return copy.deepcopy(model).eval().requires_grad_(False)
