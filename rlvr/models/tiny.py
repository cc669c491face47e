"""The built-in model: a Llama of 0.2M parameters and a tokenizer whose tokens are characters.

It is a real transformers model with a real tokenizer, so that everything which trains it trains any other; it is small
enough to learn on a laptop's CPU while one watches.
"""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PAD, UNKNOWN, USER, ASSISTANT, END = "<|pad|>", "<|unk|>", "<|user|>", "<|assistant|>", "<|end|>"
TAGS = ("<think>", "</think>", "<answer>", "</answer>")
CHARACTERS = "0123456789+-=*/.,;:?!()$%'\"<>|\\{}^_&#[]\n abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
MAX_TOKENS = 512


def build_tiny_tokenizer() -> PreTrainedTokenizerFast:
    """Every character is a token; so is every tag, which `decode` keeps because it is text and not a special token."""
    words = [PAD, UNKNOWN, USER, ASSISTANT, END, *TAGS, *CHARACTERS]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        additional_special_tokens=[USER, ASSISTANT],
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    fast.add_tokens(list(TAGS))
    fast.chat_template = CHAT_TEMPLATE
    return fast


def build_tiny_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Fresh weights from torch's global generator."""
    return LlamaForCausalLM(tiny_config(tokenizer))


def tiny_config(tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    """The architecture. Wide initial weights: so narrow a model learns far sooner with them."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_TOKENS,
        initializer_range=0.08,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
