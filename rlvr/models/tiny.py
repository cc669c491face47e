"""The built-in model: a Llama of 0.2M parameters and a tokenizer whose tokens are characters.

It is a real transformers model with a real tokenizer, so that everything which trains it trains any other; it is small
enough to learn on a laptop's CPU while one watches. `ensure_tiny` warms it up once on each machine, because reinforcement
learning has nothing to choose from in a model that has never answered.
"""

import json
import math
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path

import torch
import transformers
from filelock import FileLock
from platformdirs import user_cache_path
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rlvr.core.losses import StepSize, aggregate, lm_loss
from rlvr.data.builtin import builtin_problems
from rlvr.data.drawing import worked_example
from rlvr.data.examples import Example
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.packing import collate_examples

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


# The warm start: supervised training on worked examples, kept in a cache folder.

FORMAT = 3
"""Counts changes of the problems, the model or the training that `WarmStart` does not show."""
INFO = "warmstart.json"


@dataclass(frozen=True)
class WarmStart:
    """Settings of the warm start. A change makes another cache entry.

    The examples come in two styles, both right: with the working between the think tags, and with the answer blurted out.
    The model learns to work first and to blurt afterwards (the other way round it never learns to work); it is good at
    the one and bad at the other, and uses both. Which one pays is for reinforcement learning to find out.

    Attributes:
        working_first: share of the examples, the first ones, that all show their working.
        shortcut_share: share of shortcuts among the rest.
    """

    examples: int = 36_000
    batch_size: int = 24
    lr: float = 4e-3
    warmup_steps: int = 40
    working_first: float = 0.7
    shortcut_share: float = 0.6
    seed: int = 0


def cache_folder() -> Path:
    """The folder that built models are kept in: `$RLVR_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("RLVR_CACHE")
    return Path(chosen) if chosen else user_cache_path("rlvr")


def ensure_tiny(settings: WarmStart | None = None) -> Path:
    """Folder of the warmed-up model, as `from_pretrained` reads it; built at the first call on a machine.

    Processes that ask at the same time wait for one of them to build it. A build that is killed leaves nothing that a
    later one would take for a model.

    Raises:
        UserError: the cache folder can't be written.
    """
    settings = settings or WarmStart()
    major = transformers.__version__.partition(".")[0]  # another one may not read what this one wrote
    key = blake2b(f"{FORMAT} {major} {asdict(settings)}".encode(), digest_size=6).hexdigest()
    target = cache_folder() / f"tiny-{key}"
    if (target / INFO).is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.with_suffix(".lock")):
            if not (target / INFO).is_file():
                _build(target, settings)
    except OSError as error:
        raise UserError(
            f"can't write the cache folder {target.parent}: {error.strerror}; set RLVR_CACHE to a folder that can be written"
        ) from None
    return target


def _build(target: Path, settings: WarmStart) -> None:
    draft = target.with_name(f".building-{target.name}")
    shutil.rmtree(draft, ignore_errors=True)
    tokenizer = build_tiny_tokenizer()
    with _progress(settings) as report:
        model = warm_start(tokenizer, settings, report)
    model.save_pretrained(draft)
    tokenizer.save_pretrained(draft)
    (draft / INFO).write_text(json.dumps({"format": FORMAT, "torch": torch.__version__, **asdict(settings)}, indent=1))
    for path in [*draft.iterdir(), draft]:
        _flush(path)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    _flush(target.parent)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _progress(settings: WarmStart) -> Iterator[Callable[[float], None]]:
    bar = Progress(
        TextColumn("warm start"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}% loss {task.fields[loss]:.2f} elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with bar:
        bar.console.print("The built-in model is warmed up on worked examples, once on this machine.")
        task = bar.add_task("", total=math.ceil(settings.examples / settings.batch_size), loss=float("nan"))
        yield lambda loss: bar.update(task, advance=1, loss=loss)


def warm_start(
    tokenizer: PreTrainedTokenizerFast, settings: WarmStart, report: Callable[[float], None] = lambda loss: None
) -> LlamaForCausalLM:
    """Train a fresh model on worked examples; the loss is on responses only.

    Examples, batches and the loss are those of `SFTTrainer`. The loop is not: one process builds the model while others
    wait for a lock, often before there is a process group, and a boosted step would wait for them in turn; and the order
    of the examples, easy before hard, and the steeper schedule are what makes 40 seconds enough.

    Args:
        tokenizer: the built-in one.
        settings: how long and on what.
        report: called with the loss after each step.

    Returns:
        The model in eval mode. The caller's random state is left as it was.
    """
    with torch.random.fork_rng(devices=[]), _one_thread():
        torch.manual_seed(settings.seed)
        model = build_tiny_model(tokenizer)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.lr, betas=(0.9, 0.98), weight_decay=0.01, fused=True
        )
        actor = Actor(model)
        batches = _batches(_examples(tokenizer, settings), settings)
        for step, batch in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = settings.lr * _schedule(step, len(batches), settings.warmup_steps)
            loss = _loss(actor, batch)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            report(loss.item())
    return model.eval()


@contextmanager
def _one_thread() -> Iterator[None]:
    """So small a model gains little from a second thread, and loses much to it when the machine is busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _schedule(step: int, steps: int, warmup: int) -> float:
    """Linear warm-up, then half a cosine down to 3 %."""
    return min(1.0, (step + 1) / warmup) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * step / steps)))


def _examples(tokenizer: PreTrainedTokenizerFast, settings: WarmStart) -> list[Example]:
    """Encode problems of the training split with their worked examples."""
    rng = random.Random(settings.seed)
    problems = builtin_problems("train", settings.examples, settings.seed + 1)
    pure = settings.working_first * settings.examples
    texts = [
        worked_example(p, shortcut=i >= pure and rng.random() < settings.shortcut_share) for i, p in enumerate(problems)
    ]
    prompts = tokenizer([f"<|user|>{p.question}<|assistant|>" for p in problems], add_special_tokens=False)["input_ids"]
    responses = tokenizer([f"{text}<|end|>" for text in texts], add_special_tokens=False)["input_ids"]
    return [Example((*p, *r), len(p)) for p, r in zip(prompts, responses, strict=True)]


def _batches(examples: list[Example], settings: WarmStart) -> list[list[Example]]:
    """Batches of similar length: little padding. Their order is random within blocks, whose order is kept."""
    rng, size = random.Random(settings.seed + 1), settings.batch_size
    batches = []
    for start in range(0, len(examples), 16 * size):
        block = sorted(examples[start : start + 16 * size], key=lambda e: len(e.ids))
        parts = [block[i : i + size] for i in range(0, len(block), size)]
        rng.shuffle(parts)
        batches += parts
    return batches


def _loss(actor: Actor, batch: list[Example]) -> Tensor:
    """Mean negative log-likelihood of the response tokens of a batch."""
    sequences = collate_examples([[example] for example in batch])
    per_token = lm_loss(actor(sequences, with_entropy=False).logprobs)
    return aggregate(per_token, sequences.response_mask, StepSize.from_mask(sequences.response_mask), "token_mean")
