"""Whole runs under the plugin 3d, for `hybrid_worker`: what `test_3d` compares with runs of one process."""

from pathlib import Path
from typing import Any

import torch
from plugins_worker import GROUPED, PLAN, SETTINGS, ResponseOfPrompt, Rows
from trainer_harness import StopAfter, make_trainer, prompts, weights
from transformers import AutoModelForCausalLM

from rlvr.boost.process import replica_of
from rlvr.checkpoint.storage import list_checkpoints
from rlvr.cli.main import main as rlvr
from rlvr.data.prompts import PromptLoader
from rlvr.data.sampling import PromptSampler
from rlvr.trainer.base import Interrupted

TP: dict[str, Any] = {"plugin": "3d", "sizes": {"tp": 2}}
PP: dict[str, Any] = {"plugin": "3d", "sizes": {"pp": 2}}


def share(per_step: int = 32, size: int = 2) -> PromptLoader:
    """This process's share of the prompts, where `size` processes learn one model."""
    replica = replica_of(size)
    return PromptLoader(prompts(), PromptSampler(40, per_step, 0), replica.share, replica.world_size)


def train(size: int = 2, **changes: Any) -> dict[str, Any]:
    """A run with responses that don't depend on the number of processes: metrics of each episode, and final weights."""
    group = changes.get("num_generations", 1)
    sink = Rows()
    trainer = make_trainer(engine=ResponseOfPrompt(group), **changes)
    trainer.tracker.sinks.append(sink)
    trainer.fit(*PLAN, share(32 // group, size))
    return {"rows": sink.rows, "weights": weights(trainer)}


def resumed(folder: Path, stop: int, **options: Any) -> dict[str, Any]:
    """A run that samples for itself: as it is, and stopped in the middle and taken up again; both with final weights."""
    results = {}
    for name, safe_points in (("whole", None), ("resumed", stop)):
        trainer = make_trainer(folder / name, callbacks=[StopAfter(safe_points)] if safe_points else [], **options)
        try:
            trainer.fit(*PLAN, share())
        except Interrupted as interrupted:
            trainer = make_trainer(folder / name, **options)
            trainer.load_checkpoint(Path(str(interrupted.checkpoint)))
            trainer.fit(*PLAN, share())
        results[name] = weights(trainer)
    return results


def converted(folder: Path, first: dict[str, Any], second: dict[str, Any]) -> torch.Tensor:
    """Final weights of a run whose first episode is under one layout and whose others are under another."""
    options = {"engine": ResponseOfPrompt(), **SETTINGS}
    make_trainer(folder, **first, **options).fit(1, 1, 1, share(size=_size(first)))
    trainer = make_trainer(folder, **second, **options)
    trainer.load_checkpoint(list_checkpoints(folder)[-1])
    trainer.fit(*PLAN, share(size=_size(second)))
    return weights(trainer)


def _size(layout: dict[str, Any]) -> int:
    return 2 if layout["plugin"] == "3d" else 1


def saved(folder: Path, layout: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Logits of the whole model in the trainer, and of what it saved, as transformers reads it."""
    trainer = make_trainer(folder, engine=ResponseOfPrompt(), **layout, **SETTINGS)
    trainer.fit(1, 1, 1, share())
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad(), trainer.actor.full_weights() as actor:
        own = actor.model(ids).logits
    read = AutoModelForCausalLM.from_pretrained(folder / "actor" / "modeling")
    with torch.no_grad():
        return {"own": own, "read": read(ids).logits}


def first_ratio(layout: dict[str, Any]) -> list[dict[str, float]]:
    """Metrics (in rank 0) of an episode of one optimizer step: the policy that learns is the one that sampled."""
    trainer = make_trainer(train_batch_size=32, **layout)
    sink = Rows()
    trainer.tracker.sinks.append(sink)
    trainer.fit(1, 1, 1, share())
    return sink.rows


def command(folder: Path, model: str, data: str) -> int:
    """`rlvr train --plugin 3d --tp 2`, with generation. Returns the exit status."""
    flags = (
        "--plugin 3d --tp 2 --reward_functions gsm8k_reward_fn --num_episodes 1 --experience_batch_size 8 --train_batch_size 8 "
        "--max_new_tokens 8 --save_interval 0 --num_threads 1 --mixed_precision fp32"
    )
    places = ["--pretrain", model, "--prompt_dataset", data, "--save_path", str(folder)]
    return rlvr(["train", *flags.split(), *places])


def everything(folder: Path, model: str, data: str) -> dict[str, Any]:
    """Each check's material, under its name."""
    bf16 = {"precision": "bf16"}
    results: dict[str, Any] = {
        "tp": train(**TP, **SETTINGS),
        "pp": train(**PP, **SETTINGS),
        "pp grouped": train(**PP, **GROUPED),
        "tp shared": train(**TP, shared=True, **SETTINGS),
        "tp to pp": converted(folder / "tp-pp", TP, PP),
        "ddp to tp": converted(folder / "ddp-tp", {"plugin": "ddp"}, TP),
        "pp to zero2": converted(folder / "pp-zero2", PP, {"plugin": "zero2"}),
        "tp first": first_ratio(TP),
        "command": command(folder / "run", model, data),
    }
    for name, stop, options in (("tp", 1, TP), ("tp", 3, TP | bf16), ("pp", 3, PP), ("pp", 4, PP | bf16)):
        results[f"{name} stopped {stop}"] = resumed(folder / f"{name}{stop}", stop, **options)
    for name, layout in (("tp", TP), ("pp", PP)):
        results[f"{name} saved"] = saved(folder / f"{name}-saved", layout)
    return results
