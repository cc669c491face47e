"""A step whose gradient is not finite is skipped and counted; many in a row end the run with a checkpoint that is good; and a
broken model is never written. (Every plugin, several processes: `tests/distributed/test_plugins.py`.)"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from supervised_harness import make as make_supervised
from supervised_harness import weights as supervised_weights
from trainer_harness import experience, loader, make_trainer, weights

from rlvr.checkpoint.storage import damage, list_checkpoints
from rlvr.cli.main import main
from rlvr.errors import UserError
from rlvr.models.loading import load_causal_lm, load_tokenizer
from rlvr.tracking.diagnosis import diagnose
from rlvr.tracking.meter import Meter
from rlvr.trainer import ppo_update

pytestmark = pytest.mark.usefixtures("process")
PLAN = (1, 1, 1)  # 32 responses in two optimizer steps


def break_losses(monkeypatch, name: str, broken: range) -> None:
    """The losses of these calls become infinite."""
    loss, calls = getattr(ppo_update, name), iter(range(10**6))
    monkeypatch.setattr(ppo_update, name, lambda *a: loss(*a) * (math.inf if next(calls) in broken else 1.0))


def metrics_of(trainer: Any, plan: tuple[int, int, int]) -> dict[str, float]:
    rows: list[dict[str, float]] = []
    trainer.tracker.log = lambda step, metrics: rows.append(dict(metrics))
    trainer.fit(*plan, loader())
    return rows[-1]


def test_a_step_of_one_role_is_skipped_and_counted(monkeypatch) -> None:
    break_losses(monkeypatch, "actor_loss", range(1))
    row = metrics_of(make_trainer(), PLAN)
    assert row["skipped_steps/actor"] == 1 and row["skipped_steps/critic"] == 0
    assert math.isfinite(row["grad_norm/actor"]) and math.isfinite(row["grad_norm/critic"])
    (found,) = (f for f in diagnose([row]) if f.name.startswith("skipped steps"))
    assert found.name == "skipped steps (actor)" and "not finite in 1 optimizer step(s)" in str(found)


@pytest.mark.parametrize("saves", [True, False])
def test_many_in_a_row_end_the_run_and_cost_nothing_that_was_learned(saves, monkeypatch, tmp_path) -> None:
    break_losses(monkeypatch, "actor_loss", range(1, 100))
    trainer = make_trainer(tmp_path if saves else None, settings={"max_skipped_steps": 3})
    with pytest.raises(UserError, match="in 3 optimizer steps in a row the gradient was not finite") as told:
        trainer.fit(4, 1, 1, loader())
    assert trainer.progress.optimizer_steps == 4
    if saves:
        (saved,) = list_checkpoints(tmp_path)
        assert str(saved / "actor" / "modeling") in str(told.value) and damage(saved) is None
        again = make_trainer(tmp_path, settings={"max_skipped_steps": 3})
        again.load_checkpoint(saved)
        assert torch.equal(weights(again), weights(trainer)) and again.actor.skipped == 3


def test_a_good_step_between_bad_ones_begins_the_count_anew(monkeypatch) -> None:
    break_losses(monkeypatch, "critic_loss", range(0, 100, 2))
    row = metrics_of(make_trainer(settings={"max_skipped_steps": 2}), (2, 1, 1))
    assert row["skipped_steps/critic"] == 1 and row["skipped_steps/actor"] == 0


def test_a25_a_mini_batch_without_a_trained_token_makes_no_step() -> None:
    """AdamW would move the weights by its momentum and their decay."""
    trainer = make_trainer(settings={"kl_coef": 0.0})
    learner, items = trainer.learner, experience(4)
    learner.step(items, Meter(), kl_coef=0.0)
    before, lr, meter = weights(trainer).clone(), trainer.actor.lr, Meter()
    for item in items:
        item.mask[:] = False
    learner.step(items, meter, kl_coef=0.0)
    assert torch.equal(weights(trainer), before)
    assert trainer.actor.lr != lr, "the schedule goes on"
    assert "grad_norm/actor" not in meter.totals and "train/critic_loss" not in meter.totals


def test_a_loss_that_is_nan_is_skipped_though_its_gradients_are_0() -> None:
    trainer, meter = make_trainer(settings={"kl_coef": 0.0}), Meter()
    items = experience(4)
    trainer.learner.step(items, Meter(), kl_coef=0.0)
    before = weights(trainer).clone()
    for item in items:
        item.advantages[:] = math.nan
        item.returns[:] = math.nan
    trainer.learner.step(items, meter, kl_coef=0.0)
    assert torch.equal(weights(trainer), before), "momentum and decay would have moved them"
    assert meter.counts == {**meter.counts, "skipped_steps/actor": 1, "skipped_steps/critic": 1}


def test_supervised_steps_are_skipped_counted_and_limited(tmp_path, monkeypatch) -> None:
    trainer = make_supervised("sft", tmp_path, max_skipped_steps=2)
    before = supervised_weights(trainer)
    loss = trainer._loss
    monkeypatch.setattr(trainer, "_loss", lambda *a: loss(*a) * math.inf)
    with pytest.raises(UserError, match="in 2 optimizer steps in a row"):
        trainer.fit()
    assert torch.equal(supervised_weights(trainer), before)
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["skipped_steps"] == 2 and "grad_norm" not in row


def test_a_broken_model_is_not_written(tmp_path) -> None:
    trainer = make_trainer(tmp_path, save_interval=1)
    trainer.fit(*PLAN, loader())
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with torch.no_grad():
        next(trainer.critic.unwrapped.parameters())[0, 0] = math.nan
    last = list_checkpoints(tmp_path)[-1]
    for write in (trainer.save_checkpoint, trainer.checkpointer.export):
        with pytest.raises(UserError, match=f"not finite; nothing was written, and the last good checkpoint is {last}"):
            write()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def test_a_broken_model_ends_a_command_with_one_message(tmp_path: Path, micro_model, capsys) -> None:
    model = load_causal_lm(micro_model)
    with torch.no_grad():
        model.lm_head.weight[3, 0] = math.nan
    model.save_pretrained(tmp_path)
    load_tokenizer(micro_model).save_pretrained(tmp_path)
    for command in ("eval", "chat"):
        assert main([command, str(tmp_path)]) == 2
        told = capsys.readouterr().err
        assert "is broken: " in told and "not finite" in told and "Traceback" not in told
