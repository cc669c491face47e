"""A process that is alone learns without torch's DDP, and the same."""

import copy
from typing import Any

import pytest
import torch
from tiny_models import ragged, tiny_model
from trainer_harness import CPU

from rlvr.boost import ddp
from rlvr.boost.boosted import Boosted
from rlvr.boost.plugins import make_booster
from rlvr.config import ParallelConfig
from rlvr.models.actor import Actor
from rlvr.models.batch import collate

pytestmark = pytest.mark.usefixtures("process")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_the_same_weights_with_and_without_the_wrapper(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch, learned = tiny_model(), collate(*ragged()), []
    for processes in (1, 2):  # what the plugin is told; there is one
        monkeypatch.setattr(ddp.dist, "get_world_size", lambda *group, count=processes: count)
        booster = make_booster(ParallelConfig(mixed_precision=precision), CPU, 1.0)  # type: ignore[arg-type]
        monkeypatch.undo()
        role: Any = Actor(copy.deepcopy(model))
        boosted = Boosted(booster, role, torch.optim.AdamW(role.parameters()), grad_clip=1.0, precision=precision)
        wrapped = any(isinstance(m, torch.nn.parallel.DistributedDataParallel) for m in boosted.model.modules())
        assert wrapped is (processes == 2)
        assert boosted.unwrapped is role
        for _ in range(3):
            boosted.learn([lambda b=boosted: -b.forward(batch).logprobs.sum()] * 2)
        learned.append(dict(role.named_parameters()))
    assert not torch.equal(learned[0]["model.lm_head.weight"], model.lm_head.weight)
    assert all(torch.equal(value, learned[1][name]) for name, value in learned[0].items())
