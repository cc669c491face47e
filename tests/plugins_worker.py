"""Run by `tests/distributed/test_plugins.py` in 1, 2 and 4 processes: trains a small model under each plugin, and lets rank 0
save what came of it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tiny_models import VOCAB, ragged
from trainer_harness import StopAfter, make_trainer, prompts, weights

from rlvr.boost import process as processes
from rlvr.boost.gemini import GeminiRolePlugin
from rlvr.boost.process import gather_json
from rlvr.checkpoint.storage import list_checkpoints, tensors_in
from rlvr.core.seeding import derive_seed
from rlvr.data.prompts import Prompt, PromptLoader
from rlvr.data.sampling import PromptSampler
from rlvr.models.batch import collate
from rlvr.models.lora_config import LoraSettings
from rlvr.rollout.engine import Engine, Rollout, Sampling
from rlvr.tracking.tracker import Sink
from rlvr.trainer.base import Interrupted
from rlvr.trainer.ppo import PPOTrainer

PLAN = (2, 1, 1)  # 2 episodes of 32 responses: 4 optimizer steps of 16
LAYOUTS = {  # every plugin that runs on a CPU, in each precision that it has
    "fp32": ("ddp", "zero1", "zero2", "zero2_cpu", "fsdp"),
    "bf16": ("ddp", "zero1", "zero2", "zero2_cpu", "fsdp", "gemini", "gemini_chunks"),
}
SETTINGS: dict[str, Any] = {
    "whiten_rewards": True,
    # So few tokens in a pass that the ranks, whose responses differ in length, would make different numbers of passes.
    "micro_batch_tokens": 48,
    "kl_coef": 0.05,
}
GROUPED: dict[str, Any] = {"estimator": "grpo", "num_generations": 4, "kl_coef": 0.05}


class ResponseOfPrompt(Engine):
    """Gives each prompt a response that follows from it (and from its place in its group), short or long."""

    def __init__(self, group: int = 1) -> None:
        self.group = group

    def stream(self, model: Any, prompts: Sequence[Prompt], sampling: Sampling, seed: Any) -> Iterator[list[Rollout]]:
        rollouts, seen = [], {}
        for prompt in prompts:
            number = seen[prompt.problem.id] = seen.get(prompt.problem.id, -1) + 1
            g = torch.Generator().manual_seed(derive_seed("response", prompt.problem.id, number % self.group))
            length = int(torch.randint(1, 4, (), generator=g)) + 6 * (int(prompt.problem.id) % 2)
            ids = torch.randint(2, VOCAB, (length,), generator=g)
            ends = length < 8
            ids[-1] = 1 if ends else ids[-1]
            rollouts.append(Rollout(torch.tensor(prompt.ids), ids, "stop" if ends else "length"))
        yield rollouts


def share(per_step: int = 32) -> PromptLoader:
    """This process's share of the prompts."""
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    return PromptLoader(prompts(), PromptSampler(40, per_step, 0), rank, world_size)


def make(plugin: str, precision: str, folder: Path | None = None, **changes: Any) -> PPOTrainer:
    """A trainer; under "gemini_chunks" with chunks so small that Gemini shards even a tiny model."""
    with pytest.MonkeyPatch.context() as patch:
        if plugin == "gemini_chunks":
            init = GeminiRolePlugin.__init__

            def small(self: GeminiRolePlugin, *arguments: Any) -> None:
                init(self, *arguments)
                self.gemini_config |= {"min_chunk_size_m": 0.001, "search_range_m": 0.01}

            patch.setattr(GeminiRolePlugin, "__init__", small)
        return make_trainer(folder, plugin=plugin.removesuffix("_chunks"), precision=precision, **changes)


class Rows(Sink):
    """A sink that keeps rows of metrics."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.rows.append({k: v for k, v in metrics.items() if not k.startswith(("time/", "memory/"))})


def train(plugin: str, precision: str, **changes: Any) -> dict[str, Any]:
    """A run with responses that don't depend on the number of processes: metrics of each episode, and final weights."""
    group = changes.get("num_generations", 1)
    sink = Rows()
    trainer = make(plugin, precision, engine=ResponseOfPrompt(group), **changes)
    trainer.tracker.sinks.append(sink)
    trainer.fit(*PLAN, share(32 // group))
    return {"rows": sink.rows, "weights": weights(trainer)}


def resumed(folder: Path, plugin: str, precision: str) -> dict[str, Any]:
    """A run that samples for itself: as it is, and stopped in the middle and taken up again; both with final weights."""
    results = {}
    for name, stop in (("whole", None), ("resumed", 4)):
        place = folder / f"{plugin}-{precision}-{name}"
        options: dict[str, Any] = {"settings": {"micro_batch_tokens": 48}}
        trainer = make(plugin, precision, place, callbacks=[StopAfter(stop)] if stop else [], **options)
        try:
            trainer.fit(*PLAN, share())
        except Interrupted as interrupted:
            trainer = make(plugin, precision, place, **options)
            trainer.load_checkpoint(Path(str(interrupted.checkpoint)))
            trainer.fit(*PLAN, share())
        results[name] = weights(trainer)
    return results


def converted(folder: Path, first: str, second: str, precision: str) -> torch.Tensor:
    """Final weights of a run whose first episode is one plugin's and whose others are another's."""
    place = folder / f"{first}-{second}-{precision}"
    options = {"engine": ResponseOfPrompt(), **SETTINGS}
    make(first, precision, place, **options).fit(1, 1, 1, share())
    trainer = make(second, precision, place, **options)
    trainer.load_checkpoint(list_checkpoints(place)[-1])
    trainer.fit(*PLAN, share())
    return weights(trainer)


def sampled(plugin: str) -> dict[str, list[Any]]:
    """What each rank samples for the same prompts, twice from the same state; responses end at different lengths."""
    trainer = make(plugin, "fp32")
    told = []
    for _ in range(2):
        collected = trainer.maker.make_experience(prompts(4) * 2, trainer.meter, 7, trainer.rank)
        told.append([item.response_ids.tolist() for item in collected.experience])
    return {"responses": gather_json(told[0]), "again": gather_json(told[1])}


def struck(plugin: str, precision: str) -> dict[str, Any]:
    """The actor after two optimizer steps, and after the same two with two others between them that are skipped: in the first of
    these the last process has an infinite loss, in the second its shards alone hold an infinite gradient."""
    ends, last = [], dist.get_rank() == dist.get_world_size() - 1
    counts: list[int] = []
    batch = collate(*ragged())
    for factors in ([1.0, 0.5], [1.0, math.inf, 1.0, 0.5]):
        role = make(plugin, precision).actor
        role.lr_scheduler = None  # it advances with each step
        for number, factor in enumerate(factors):
            own = 1.0 if math.isinf(factor) and not last else factor
            with pytest.MonkeyPatch.context() as patch:
                if number == 2 and last:
                    patch.setattr(role.layout, "gradients", lambda: [torch.tensor([math.inf])])
                role.learn([lambda role=role, f=own: role.forward(batch).logprobs.mean() * f] * 2)
            counts.append(role.skipped)
        state = role.training_state()
        with role.full_precision_weights() as module:
            weights = torch.cat([p.detach().flatten() for p in module.parameters()])
        ends.append({"weights": weights, "state": [t.clone() for _, t in tensors_in(state)]})
    return {"quiet": ends[0], "struck": ends[1], "skipped": gather_json(counts)}


def still(plugin: str, precision: str) -> dict[str, Any]:
    """A run that samples for itself and whose learning rate is 0: metrics of each episode, weights before and after."""
    sink = Rows()
    trainer = make(plugin, precision, lr=0.0, kl_coef=0.05)
    before = weights(trainer).clone()
    trainer.tracker.sinks.append(sink)
    trainer.fit(*PLAN, share())
    return {"rows": sink.rows, "before": before, "after": weights(trainer)}


def reset(plugin: str, precision: str) -> list[dict[str, float]]:
    """Metrics of each episode of a run that samples for itself, whose reference becomes the actor after each."""
    sink = Rows()
    trainer = make(plugin, precision, kl_coef=0.05, reference_reset_interval=1)
    trainer.tracker.sinks.append(sink)
    trainer.fit(*PLAN, share())
    return sink.rows


def groups() -> list[list[list[str]]]:
    """Which problems each rank's responses belong to, in order, with four responses to each."""
    trainer = make("zero2", "fp32", engine=ResponseOfPrompt(4), **GROUPED)
    seen: list[list[str]] = []
    make_experience = trainer.maker.make_experience

    def recording(given: Sequence[Prompt], *arguments: Any, **options: Any) -> Any:
        seen.append([prompt.problem.id for prompt in given])
        return make_experience(given, *arguments, **options)

    trainer.maker.make_experience = recording  # type: ignore[method-assign]
    trainer.fit(1, 2, 1, share(8))
    return gather_json(seen)


def everything(folder: Path) -> dict[str, Any]:
    """Each check's material, under its name."""
    world_size = dist.get_world_size()
    results: dict[str, Any] = {}
    for precision, plugins in LAYOUTS.items():
        for plugin in plugins if world_size < 4 else plugins:
            results[f"{plugin} {precision}"] = train(plugin, precision, **SETTINGS)
            if world_size < 4:
                results[f"{plugin} {precision} struck"] = struck(plugin, precision)
                results[f"{plugin} {precision} still"] = still(plugin, precision)
                results[f"{plugin} {precision} reset"] = reset(plugin, precision)
    for kind, changes in KINDS.items():
        plugin = "ddp" if world_size == 1 else "fsdp"
        results[f"{plugin} {kind}"] = train(plugin, "fp32", **changes)
    if world_size == 1:
        return results
    results["groups"] = groups()
    if world_size == 4:
        return results
    for plugin in ("ddp", "fsdp"):
        results[f"{plugin} sampled"] = sampled(plugin)
    for plugin, precision in STOPPED:
        results[f"{plugin} {precision} stopped"] = resumed(folder, plugin, precision)
    for first, second, precision in CONVERSIONS:
        results[f"{first} to {second} {precision}"] = converted(folder, first, second, precision)
    return results


KINDS: dict[str, dict[str, Any]] = {
    "grouped": GROUPED,
    "lora": {"lora": LoraSettings(r=4), **SETTINGS},
    "lora in 4 bits": {"lora": LoraSettings(r=4), "in_4bit": True, **SETTINGS},
    "shared": {"shared": True, **SETTINGS},
}
STOPPED = (
    ("fsdp", "fp32"),
    ("fsdp", "bf16"),
    ("gemini", "bf16"),
    ("gemini_chunks", "bf16"),
    ("zero2_cpu", "bf16"),
    ("zero1", "bf16"),
)
CONVERSIONS = (
    ("ddp", "fsdp", "fp32"),
    ("fsdp", "zero2", "fp32"),
    ("zero2", "ddp", "fp32"),
    ("ddp", "zero2", "bf16"),
    ("zero2", "fsdp", "bf16"),
    ("fsdp", "gemini_chunks", "bf16"),
    ("gemini", "ddp", "bf16"),
)


def main(folder: str) -> None:
    info = processes.start(seed=0, num_threads=1)
    results = everything(Path(folder))
    if info.is_main:
        torch.save(results, Path(folder) / "results.pt")
    processes.barrier()
    processes.stop()
