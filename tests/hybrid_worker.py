"""Run by `tests/distributed/test_3d.py` in two processes: roles under the plugin 3d beside the same roles in plain torch, and
the runs of `hybrid_runs`; rank 0 saves what came of it.

torchrun --nproc_per_node=2 tests/hybrid_worker.py FOLDER MODEL PROBLEMS
"""

import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hybrid_runs import everything
from tiny_models import VOCAB, ragged, tiny_model
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from rlvr.boost import process as processes
from rlvr.boost.boosted import Boosted, Pass
from rlvr.boost.plugins import make_booster
from rlvr.config import ParallelConfig
from rlvr.errors import UserError
from rlvr.models.actor import Actor, ActorWithValues
from rlvr.models.backbone import prepare
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.critic import Critic
from rlvr.models.lora import apply_lora
from rlvr.models.lora_config import LoraSettings

CPU = torch.device("cpu")
CLIP = 0.5
KINDS: dict[str, Any] = {"actor": Actor, "checkpointing": Actor, "shared": ActorWithValues}


@dataclass
class Compared:
    """How far a role under 3d is from the same role in plain torch, after two optimizer steps.

    Attributes:
        forward: largest difference of what the whole model says before any step.
        norms: largest relative difference of the gradients' norms.
        weights: largest difference of weights.
        resumed: largest difference, after a third step, from a role that took over the state before it.
        error: what was refused.
    """

    forward: float = 0.0
    norms: float = 0.0
    weights: float = 0.0
    resumed: float = 0.0
    error: str = ""


def make_role(kind: str, family: str) -> Any:
    """An actor, critic, or actor with values, of one of the families here or in `tiny_models`."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = SPECIAL[family]() if family in SPECIAL else tiny_model(family)
    prepare(model, grad_checkpoint=kind == "checkpointing")
    if kind == "lora":
        return Actor(apply_lora(model, LoraSettings(r=2)))
    return Critic(model.base_model, seed=3) if kind == "critic" else KINDS[kind](model)


def _llama(**changes: int) -> LlamaForCausalLM:
    sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB} | changes
    return LlamaForCausalLM(LlamaConfig(hidden_size=24, intermediate_size=32, **sizes))


def _mistral() -> MistralForCausalLM:
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": VOCAB}
    return MistralForCausalLM(MistralConfig(hidden_size=16, intermediate_size=32, sliding_window=None, **sizes))


SPECIAL: dict[str, Callable[[], Any]] = {
    "llama-odd": partial(_llama, vocab_size=VOCAB + 1),
    "llama-3-heads": partial(_llama, num_attention_heads=3, num_key_value_heads=3),
    "llama-1-layer": partial(_llama, num_hidden_layers=1),
    "mistral": _mistral,
}


def make_optimizer(role: Any) -> torch.optim.Optimizer:
    # A large epsilon, so that weights whose gradients are nothing but rounding (biases of keys) don't move by it.
    return torch.optim.AdamW(role.parameters(), lr=1e-2, eps=1e-3, fused=True)


def micro_batches() -> list[SequenceBatch]:
    """Four, each of its own shape."""
    return [collate(*ragged(seed=seed, count=3 + seed)) for seed in range(4)]


def share(batch: SequenceBatch, output: Any) -> Tensor:
    """Any share of a loss that asks everything of a role: logprobs, entropies, values."""
    mask = batch.response_mask
    signs = torch.where(torch.arange(mask.numel()).view(mask.shape) % 3 == 0, 1.0, -0.5)
    total = torch.zeros(())
    if hasattr(output, "logprobs"):
        total = total + (signs * output.logprobs)[mask].sum() + 0.1 * output.entropy[mask].sum()
    if output.values is not None:
        total = total + ((output.values - signs)[mask] ** 2).sum()
    return total / 10


def plain_step(role: Any, optimizer: torch.optim.Optimizer) -> float:
    for batch in micro_batches():
        share(batch, role(batch)).backward()
    norm = torch.nn.utils.clip_grad_norm_(role.parameters(), CLIP)
    optimizer.step()
    optimizer.zero_grad()
    return float(norm)


def step(boosted: Boosted) -> float:
    mine = micro_batches()[boosted.replica.index :: boosted.replica.count]

    def loss_of(batch: SequenceBatch) -> Callable[[Any], Tensor]:
        return lambda output: share(batch, output)

    return boosted.learn([Pass(boosted, (batch,), loss_of(batch)) for batch in mine])


def boost(role: Any, parallel: ParallelConfig) -> Boosted:
    booster = make_booster(parallel, CPU, CLIP)
    return Boosted(booster, role, make_optimizer(role), grad_clip=CLIP, precision=parallel.mixed_precision)


def exact_weights(boosted: Boosted) -> dict[str, Tensor]:
    """Of rank 0; the others' are elsewhere."""
    with boosted.full_precision_weights() as whole:
        return {name: p.detach().clone() for name, p in whole.named_parameters()}


def furthest(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return max(float((one[name].float() - other[name].float()).abs().max()) for name in one)


def compare(kind: str, family: str, parallel: ParallelConfig, then: ParallelConfig | None = None) -> Compared:
    """A role under 3d beside plain torch; then a third step, in a new role (of layout `then`) that takes over the state."""
    plain = make_role(kind, family)
    of_plain = make_optimizer(plain)
    boosted = boost(make_role(kind, family), parallel)
    result = Compared()
    batch = micro_batches()[1]
    with torch.no_grad(), boosted.scoring() as forward:
        result.forward = max(
            float((a - b).abs().max()) for a, b in zip(forward(batch), plain(batch), strict=True) if a is not None
        )
    for _ in range(2):
        expected, norm = plain_step(plain, of_plain), step(boosted)
        result.norms = max(result.norms, abs(norm - expected) / expected)
    state, weights = boosted.training_state(), exact_weights(boosted)
    main = processes.start(0).is_main
    if main:
        result.weights = furthest(weights, dict(plain.named_parameters()))
    shared = [None if not main else weights, None if not main else state]
    torch.distributed.broadcast_object_list(shared)
    again = boost(make_role(kind, family), then or parallel)
    full = {
        name: shared[0][name] if name in shared[0] else t for name, t in make_role(kind, family).state_dict().items()
    }
    again.load_weights(full)
    again.load_training_state(shared[1])
    step(boosted)
    step(again)
    one, other = exact_weights(boosted), exact_weights(again)
    if main:
        result.resumed = furthest(one, other)
    return result


TP, PP, SP = {"tp": 2}, {"pp": 2}, {"enable_sequence_parallelism": True}
ALL_TO_ALL = {"sp": 2, "sp_mode": "all_to_all", **SP}
BF16 = {"mixed_precision": "bf16"}
CASES: dict[str, tuple[str, str, dict[str, Any], dict[str, Any] | None]] = {
    "llama tp": ("actor", "llama", TP, None),
    "llama pp": ("critic", "llama", PP, None),
    "llama tp, then pp": ("shared", "llama", TP, PP),
    "odd vocabulary pp, then tp": ("actor", "llama-odd", PP, TP),
    "odd vocabulary tp": ("actor", "llama-odd", TP, None),
    "qwen2-tied tp": ("actor", "qwen2-tied", TP, None),
    "qwen2-tied pp": ("actor", "qwen2-tied", PP, None),
    "mistral tp": ("critic", "mistral", TP, None),
    "mistral pp": ("actor", "mistral", PP, None),
    "llama split_gather": ("actor", "llama", TP | SP, None),
    "qwen2-tied all_to_all": ("actor", "qwen2-tied", ALL_TO_ALL, None),
    "llama data parallel": ("actor", "llama", {}, None),
    "llama tp, checkpointing": ("checkpointing", "llama", TP, None),
    "llama pp, checkpointing": ("checkpointing", "llama", PP, None),
    "llama bf16 tp": ("actor", "llama", TP | BF16, None),
    "llama bf16 pp": ("critic", "llama", PP | BF16, None),
    "llama bf16 zero1": ("actor", "llama", BF16 | {"zero_stage": 1}, None),
    "llama bf16 zero2": ("actor", "llama", BF16 | {"zero_stage": 2}, None),
    "refused: family": ("actor", "gpt2", TP, None),
    "refused: heads": ("actor", "llama-3-heads", TP, None),
    "refused: key heads": ("critic", "llama", ALL_TO_ALL | TP, None),
    "refused: layers": ("actor", "llama-1-layer", PP, None),
    "refused: lora": ("lora", "llama", TP, None),
    "refused: processes": ("actor", "llama", {"tp": 3}, None),
}


def main(folder: Path, model: str, data: str) -> None:
    process = processes.start(0, num_threads=1)
    results: dict[str, Any] = {}
    for name, (kind, family, settings, then) in CASES.items():
        base = {"plugin": "3d", "mixed_precision": "fp32"}
        try:
            other = ParallelConfig(**(base | then)) if then is not None else None  # type: ignore[arg-type]
            found = compare(kind, family, ParallelConfig(**(base | settings)), other)
        except UserError as error:
            found = Compared(error=str(error))
        results[name] = asdict(found)
    results |= everything(folder, model, data)
    if process.is_main:
        torch.save(results, folder / "results.pt")
    processes.barrier()
    processes.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
