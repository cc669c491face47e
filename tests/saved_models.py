"""A model and its tokenizer in a folder, as people have them, but so small that a whole run takes a second."""

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.models.tiny import build_tiny_tokenizer


def save_micro_model(folder: Path, seed: int = 0) -> str:
    """A random Llama of 16 dimensions with the built-in tokenizer, saved; returns the folder."""
    tokenizer = build_tiny_tokenizer()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=len(tokenizer),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                max_position_embeddings=512,
                eos_token_id=tokenizer.eos_token_id,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=None,
            )
        )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)
