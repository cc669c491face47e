"""Gemini in one process: automatic placement does what static placement does, and what it can't train is refused.

Automatic placement reads how much GPU memory is in use, which is made up here; nothing is ever moved.
"""

from functools import partial

import pytest
import torch
from tiny_models import ragged, tiny_model
from trainer_harness import CPU, loader, make_trainer, settings_of, weights

from rlvr.boost import plugins
from rlvr.boost.boosted import Boosted, Pass
from rlvr.boost.gemini import GeminiRolePlugin
from rlvr.config import ParallelConfig
from rlvr.core.losses import StepSize
from rlvr.errors import UserError
from rlvr.models.actor import ActorWithValues
from rlvr.models.batch import collate
from rlvr.models.lora_config import LoraSettings
from rlvr.tracking.meter import Meter
from rlvr.trainer.ppo_update import Step, ptx_loss

pytestmark = pytest.mark.usefixtures("process")
PLAN = (2, 1, 1)


@pytest.fixture
def plenty_of_memory(monkeypatch) -> None:
    import colossalai.legacy.utils.memory as memory

    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *a: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *a: 2**20)
    monkeypatch.setattr(memory, "colo_device_memory_capacity", lambda device: 2**34)


def trained(**changes) -> tuple[torch.Tensor, float]:
    trainer = make_trainer(precision="bf16", **changes)
    trainer.fit(*PLAN, loader())
    return weights(trainer), trainer.actor.grad_norm


def test_automatic_placement_learns_the_same(plenty_of_memory, monkeypatch) -> None:
    static, norm = trained(plugin="gemini")
    monkeypatch.setattr(plugins, "check_plugin", lambda *a: None)
    auto, other = trained(plugin="gemini_auto")
    assert torch.equal(auto, static) and norm == other


def test_the_norm_is_known_without_clipping() -> None:
    clipped, norm = trained(plugin="gemini", grad_clip=0.1)
    free, other = trained(plugin="gemini", grad_clip=0.0)
    assert norm > 0.1 and other > 0.1 and not torch.equal(clipped, free)


def test_a_pass_without_values_gives_a_value_head_its_gradient() -> None:
    """Gemini fails if a weight has no gradient; the language-modelling loss reads no values."""
    actor = ActorWithValues(tiny_model())
    booster = plugins.make_booster(ParallelConfig(plugin="gemini", mixed_precision="bf16"), CPU, 1.0)
    role = Boosted(booster, actor, torch.optim.AdamW(actor.parameters(), lr=1e-2))
    batch = collate(*ragged())
    size = StepSize(20.0, 5.0)
    loss = partial(ptx_loss, batch, Step(settings_of(ptx_coef=0.5), 0.0, Meter(), size, ptx_size=size))
    assert role.learn([Pass(role, (batch,), loss)]) > 0


def test_what_it_can_not_train_is_refused() -> None:
    with pytest.raises(UserError, match="trains all weights.*with LoRA take ddp"):
        make_trainer(plugin="gemini", precision="bf16", lora=LoraSettings(r=4))
    model = tiny_model()
    with pytest.raises(UserError, match="wants torch.optim.AdamW, not SGD"):
        GeminiRolePlugin("bf16", "static", 1.0).configure(model, torch.optim.SGD(model.parameters()))
