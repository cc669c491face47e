"""Small tokenizers with each model family's special tokens and quirks, trained here: no hub, no downloads."""

import json
from functools import cache

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

TEXT = [
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May.",
    "How many clips did Natalia sell altogether in April and May? 48 / 2 = 24, 48 + 24 = 72.",
    "Solve the problem. Reason step by step, then write only the final answer. Why is it so?",
    "<think> </think> <answer> </answer> system user assistant model Problem: Solution:",
]

# A chat template of the kind that comes with tokenizers.
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_level(
    specials: list[str], added: list[str] = (), bos: str | None = None, **roles: str
) -> PreTrainedTokenizerFast:
    """BPE over bytes, as GPT-2, Llama 3, Qwen and SmolLM have; with `bos`, encoding puts it first unless told not to."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=500, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.add_tokens(list(added))
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
        roles["bos_token"] = bos
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def metaspace(specials: list[str], bos: str, **roles: str) -> PreTrainedTokenizerFast:
    """BPE with a visible space and single bytes for unknown characters, as Gemma has."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=[*specials, "<unk>"], show_progress=False)
    trained.train_from_iterator([text.replace(" ", "▁") for text in TEXT], trainer)
    state = json.loads(trained.to_str())
    vocabulary = state["model"]["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    state["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, unk_token="<unk>", **roles)


def characters(marks: list[str], tags: list[str]) -> PreTrainedTokenizerFast:
    """One token for each character, role mark and tag, as the built-in model has."""
    alphabet = sorted({*" \n", *"".join(TEXT), *"?=;0123456789+-"})
    vocabulary = {token: i for i, token in enumerate(["<|pad|>", "<|unk|>", *marks, *tags, *alphabet])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<|unk|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(["<|pad|>", "<|unk|>", *marks])
    tokenizer.add_tokens(tags)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>", unk_token="<|unk|>"
    )


@cache
def family(name: str) -> PreTrainedTokenizerBase:
    """A tokenizer of the family that the shipped template `name` is for. Shared: tests must not change it."""
    ends = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if name == "tiny":
        return characters(["<|user|>", "<|assistant|>", "<|end|>"], ["<think>", "</think>", "<answer>", "</answer>"])
    if name == "smollm2":
        marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"]
        return byte_level(marks, **ends, bos_token="<|im_start|>")
    if name == "qwen2.5":
        return byte_level(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|box_start|>"], **ends)
    if name == "qwen3":
        marks = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|box_start|>"]
        return byte_level(marks, ["<think>", "</think>"], **ends)
    if name == "llama3":
        marks = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        return byte_level(marks, bos="<|begin_of_text|>", eos_token="<|eot_id|>")
    if name == "gemma3":
        return metaspace(["<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"], bos="<bos>", eos_token="<eos>")
    if name == "generic":
        tokenizer = byte_level(["<|start|>", "<|im_start|>", "<|im_end|>"], bos="<|start|>", eos_token="<|im_end|>")
        tokenizer.chat_template = "{{ bos_token }}" + CHATML
        return tokenizer
    if name in ("plain", "as_is"):
        return byte_level(["<|endoftext|>"], eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    raise ValueError(f"no tokenizer for {name!r}")
