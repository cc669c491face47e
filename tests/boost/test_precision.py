"""What a plugin does to a model's numbers: positions stay exact, and a model that only infers gives the same as one that learns."""

import copy
from typing import Any

import pytest
import torch
from plugins_worker import LAYOUTS
from tiny_models import VOCAB, ragged, tiny_model
from torch import Tensor
from trainer_harness import CPU
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.boost.boosted import Boosted
from rlvr.boost.frozen import Precision
from rlvr.boost.plugins import freeze, make_booster
from rlvr.config import ParallelConfig
from rlvr.models.actor import Actor
from rlvr.models.batch import SequenceBatch, collate

pytestmark = pytest.mark.usefixtures("process")
EVERY = [(plugin, p) for p, plugins in LAYOUTS.items() for plugin in plugins if plugin != "gemini_chunks"]
POSITIONS = 4096


def boosted(plugin: str, precision: str, model: Any) -> Boosted:
    role = Actor(model)
    booster = make_booster(ParallelConfig(plugin=plugin, mixed_precision=precision), CPU, 1.0)
    return Boosted(booster, role, torch.optim.AdamW(role.parameters(), lr=0.1), grad_clip=1.0, precision=precision)


def long_model() -> LlamaForCausalLM:
    """One head of 32 frequencies, from a turn of one radian a token down to hardly any."""
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=1,
        vocab_size=VOCAB,
        max_position_embeddings=POSITIONS,
        rope_theta=1e6,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


@torch.no_grad()
def logprobs(forward: Any, batch: SequenceBatch) -> Tensor:
    return forward(batch).logprobs


@pytest.fixture(scope="module")
def long_batch() -> SequenceBatch:
    ids = torch.randint(2, VOCAB, (POSITIONS + 1,), generator=torch.Generator().manual_seed(0))
    return collate([ids[:1]], [ids[1:]])


@pytest.mark.parametrize(("plugin", "precision"), EVERY)
def test_positions_stay_exact(plugin, precision, long_batch) -> None:
    """4,096 logprobs of the boosted model are those of the model as it was, in the same arithmetic, bit for bit; also of the whole
    weights, which generate and are saved."""
    plain, role = long_model(), boosted(plugin, precision, long_model())
    casts = precision == "bf16" and plugin != "ddp"
    if casts:
        frequencies = plain.model.rotary_emb.inv_freq.clone()
        rounded = logprobs(Actor(copy.deepcopy(plain).bfloat16()), long_batch)
        plain.bfloat16().model.rotary_emb.inv_freq = frequencies
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16" and not casts):
        want = logprobs(Actor(plain), long_batch)
    with role.scoring() as run:
        assert torch.equal(logprobs(run, long_batch), want)
    with role.full_weights() as whole, role.autocast():
        assert torch.equal(logprobs(whole, long_batch), want)
    if casts:
        assert (want - rounded)[0, 1000:].abs().mean() > 0.05, "rounded frequencies would show"


@pytest.mark.parametrize(("plugin", "precision"), EVERY)
def test_a_frozen_copy_gives_the_same_bit_for_bit(plugin, precision) -> None:
    """As the settings make it, too, and padded otherwise; so the divergence of what has not moved is 0."""
    role = boosted(plugin, precision, tiny_model())
    batch = collate(*ragged())
    parallel = ParallelConfig(plugin=plugin, mixed_precision=precision)
    with role.scoring() as run:
        want = logprobs(run, batch)
    for frozen in (role.freeze(Actor(tiny_model())), freeze(Actor(tiny_model()), parallel, CPU)):
        assert torch.equal(frozen.forward(batch, with_entropy=False).logprobs, want)
        short = torch.bfloat16 if precision == "bf16" and plugin != "ddp" else torch.float32
        assert {p.dtype for p in frozen.model.parameters()} == {short}
        assert not any(p.requires_grad for p in frozen.model.parameters())
    if precision == "bf16":
        exact = logprobs(Actor(tiny_model()), batch)
        assert not torch.equal(want, exact) and role.precision.computes == torch.bfloat16
    else:
        assert role.precision == Precision()
