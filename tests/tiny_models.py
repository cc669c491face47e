"""Random models of the families that matter, small enough for a test: rotary, absolute positions, ALiBi."""

import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    OPTConfig,
    OPTForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)

VOCAB = 40
FAMILIES = ("llama", "gpt2", "opt", "bloom", "qwen2-tied")


def tiny_model(family: str = "llama", dropout: float = 0.0, seed: int = 0) -> PreTrainedModel:
    """A random causal LM with a vocabulary of `VOCAB`; dropout where the family has it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return _build(family, dropout).eval()


def _build(family: str, dropout: float) -> PreTrainedModel:
    common = {"vocab_size": VOCAB, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    if family == "llama":
        return LlamaForCausalLM(
            LlamaConfig(
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                attention_dropout=dropout,
                **common,
            )  # fmt: skip
        )
    if family == "qwen2-tied":
        return Qwen2ForCausalLM(
            Qwen2Config(
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                attention_dropout=dropout,
                tie_word_embeddings=True,
                **common,
            )  # fmt: skip
        )
    if family == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(
                n_embd=16,
                n_layer=2,
                n_head=4,
                n_positions=64,
                resid_pdrop=dropout,
                embd_pdrop=dropout,
                attn_pdrop=dropout,
                **common,
            )  # fmt: skip
        )
    if family == "opt":
        return OPTForCausalLM(
            OPTConfig(
                hidden_size=16,
                ffn_dim=32,
                num_hidden_layers=2,
                num_attention_heads=4,
                max_position_embeddings=64,
                word_embed_proj_dim=16,
                dropout=dropout,
                **common,
            )  # fmt: skip
        )
    if family == "bloom":
        return BloomForCausalLM(
            BloomConfig(
                hidden_size=16, n_layer=2, n_head=4, hidden_dropout=dropout, attention_dropout=dropout, **common
            )
        )
    raise ValueError(family)


def ragged(seed: int = 0, count: int = 5) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Prompts and responses of different lengths; token 1 is EOS and PAD at once, and occurs inside too."""
    g = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> torch.Tensor:
        return torch.randint(VOCAB, (int(torch.randint(low, high, (1,), generator=g)),), generator=g)

    return [ids(1, 7) for _ in range(count)], [ids(1, 9) for _ in range(count)]
