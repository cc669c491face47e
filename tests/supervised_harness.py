"""Small supervised runs for tests: random models, random examples and pairs."""

import copy
import random
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tiny_models import VOCAB, tiny_model
from trainer_harness import CPU, LetterTokenizer
from transformers import AutoModelForSequenceClassification

from rlvr.boost.optimizer import lr_schedule
from rlvr.boost.plugins import make_booster
from rlvr.config import ParallelConfig, RewardTrainingConfig, SFTConfig
from rlvr.data.examples import Example
from rlvr.data.preferences import Pair
from rlvr.models.lora import apply_lora
from rlvr.models.reward_model import RewardModel
from rlvr.tracking.tracker import JsonlSink, Tracker
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.reward_model import RewardModelTrainer
from rlvr.trainer.sft import SFTTrainer
from rlvr.trainer.supervised import SupervisedTrainer

STEPS = 6


def ids(rng: random.Random, low: int, high: int) -> tuple[int, ...]:
    return tuple(rng.randrange(2, VOCAB) for _ in range(rng.randint(low, high)))


def examples(count: int = 40, seed: int = 0) -> list[Example]:
    """Of very different lengths; some with a turn in the middle that is not learned."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        prompt, response = ids(rng, 1, 6), ids(rng, 1, 6) + ids(rng, 0, 14) + (1,)
        skipped = ((len(prompt) + 1, len(prompt) + 3),) if number % 3 == 0 and len(response) > 5 else ()
        made.append(Example(prompt + response, len(prompt), skipped))
    return made


def pairs(count: int = 40, seed: int = 0) -> list[Pair]:
    """The better response ends in 5, the worse one in 6."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        prompt = ids(rng, 1, 5)
        made.append(
            Pair(prompt + ids(rng, 0, 12) + (5,), prompt + ids(rng, 0, 12) + (6,), prompt, margin=0.5 * (number % 2))
        )
    return made


class StopAfter(Callback):
    """Asks for a stop, as a signal would, after so many optimizer steps."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_step_end(self, trainer: SupervisedTrainer[Any]) -> None:
        if trainer.progress.optimizer_steps == self.steps:
            trainer._interrupt.signum = 15


class StopInEvaluation(Callback):
    """Asks for a stop after so many passes of evaluations."""

    def __init__(self, passes: int) -> None:
        self.left = passes

    def on_evaluate_pass(self, trainer: SupervisedTrainer[Any], done: int, passes: int) -> None:
        self.left -= 1
        if self.left == 0:
            trainer._interrupt.signum = 15


def reward_model(family: str = "llama") -> RewardModel:
    """An untrained reward model on the random decoder of a family."""
    decoder = tiny_model(family).base_model
    config = copy.deepcopy(decoder.config)
    config.num_labels, config.pad_token_id = 1, None  # transformers then reads the last token of a single row
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = RewardModel(AutoModelForSequenceClassification.from_config(config).eval())
    model.decoder.load_state_dict(decoder.state_dict())
    return model


def make(kind: str, folder: Path | None = None, **changes: Any) -> SupervisedTrainer[Any]:
    """A trainer (`sft` or `rm`) over a fresh model that is the same each time. `changes` are settings or arguments of the
    trainer, or plugin, family, attention, lr, precision, items, held_out, lora (settings: only an
    adapter learns)."""
    c = SimpleNamespace(
        plugin="ddp", family="llama", attention="sdpa", lr=1e-2, precision="fp32", items=None, held_out=(), lora=None
    )
    for name in list(vars(c)):
        setattr(c, name, changes.pop(name, getattr(c, name)))
    config = SFTConfig() if kind == "sft" else RewardTrainingConfig()
    flat = {"max_steps": STEPS, "train_batch_size": 8, "log_interval": 2, "mixed_precision": c.precision}
    for section in fields(config):
        part = getattr(config, section.name)
        for name in (f.name for f in fields(part)):
            setattr(part, name, changes.pop(name, flat.get(name, getattr(part, name))))
    made: Any = tiny_model(c.family) if kind == "sft" else reward_model(c.family)
    if c.attention != "sdpa":  # PyTorch's own runs without padding anyway
        made.set_attn_implementation(c.attention)
    if c.lora is not None:
        apply_lora(made, c.lora) if kind == "sft" else made.add_adapter(c.lora)
    optimizer = torch.optim.AdamW([p for p in made.parameters() if p.requires_grad], lr=c.lr, fused=True)
    booster = make_booster(ParallelConfig(plugin=c.plugin, mixed_precision=c.precision), CPU, config.train.grad_clip)
    trainer: Any = SFTTrainer if kind == "sft" else RewardModelTrainer
    return trainer(
        booster,
        made,
        optimizer,
        lr_schedule(optimizer, config.train.max_steps),
        LetterTokenizer(),
        c.items or (examples() if kind == "sft" else pairs()),
        config,
        held_out=c.held_out,
        save_dir=folder,
        tracker=Tracker([JsonlSink(folder / "metrics.jsonl")] if folder else []),
        **changes,
    )


def weights(trainer: SupervisedTrainer[Any]) -> torch.Tensor:
    """Every weight in one vector; only in rank 0 if they are sharded. Collective."""
    with trainer.role.full_precision_weights() as module:
        return torch.cat([p.detach().flatten().float() for p in module.parameters()])
