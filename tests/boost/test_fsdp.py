"""FSDP in one process: every family gives the gradients of a plain model, and Booster saves and loads."""

from typing import Any

import pytest
import torch
from tiny_models import FAMILIES, ragged, tiny_model
from torch import nn
from trainer_harness import CPU

from rlvr.boost.boosted import Boosted
from rlvr.boost.fsdp import decoder_layers
from rlvr.boost.plugins import make_booster
from rlvr.config import ParallelConfig
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.batch import collate
from rlvr.models.critic import Critic

pytestmark = pytest.mark.usefixtures("process")


def boosted(role: nn.Module, plugin: str = "fsdp", clip: float = 0.0) -> Boosted:
    booster = make_booster(ParallelConfig(plugin=plugin, mixed_precision="fp32"), CPU, clip)
    return Boosted(booster, role, torch.optim.AdamW(role.parameters(), lr=1e-2), grad_clip=clip)


def loss(role: Boosted) -> torch.Tensor:
    out = role.forward(collate(*ragged()))
    return out.logprobs.sum() if hasattr(out, "logprobs") else out.values.sum()


def whole(role: Boosted) -> dict[str, torch.Tensor]:
    with role.full_precision_weights() as module:
        return {name: p.detach().clone() for name, p in module.named_parameters()}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_is_that_of_ddp(family, checkpointing) -> None:
    """Gradient checkpointing runs the layers again in the backward pass, where their weights must be whole once more."""
    steps = {}
    for plugin in ("ddp", "fsdp"):
        role = boosted(Actor(prepare(tiny_model(family), checkpointing)), plugin, clip=0.5)
        norms = [role.learn([lambda role=role: loss(role), lambda role=role: 0.5 * loss(role)]) for _ in range(2)]
        steps[plugin] = norms, whole(role)
    assert steps["fsdp"][0] == pytest.approx(steps["ddp"][0], rel=1e-5)
    assert steps["fsdp"][1].keys() == steps["ddp"][1].keys()
    for name, weight in steps["ddp"][1].items():
        torch.testing.assert_close(steps["fsdp"][1][name], weight, rtol=1e-4, atol=1e-5)


def test_the_layers_are_found() -> None:
    for family in FAMILIES:
        layers = decoder_layers(Actor(tiny_model(family)))
        assert len(layers) == 2 and len({type(layer) for layer in layers}) == 1
    assert decoder_layers(nn.Linear(2, 2)) == []


def test_weights_that_are_whole_are_those_after_the_last_step_and_go_again() -> None:
    role = boosted(Critic(tiny_model().base_model))
    before = whole(role)
    role.learn([lambda: loss(role)])
    with torch.no_grad():
        loss(role)  # leaves the outermost weights whole in FSDP
    meta_copy: Any = role.layout.meta_copy  # type: ignore[attr-defined]
    with role.full_weights() as module, role.full_weights() as same:
        assert module is same
        assert any(not torch.equal(p, before[name]) for name, p in module.named_parameters())
        with torch.no_grad():
            expected = role.forward(collate(*ragged())).values
            torch.testing.assert_close(module(collate(*ragged())).values, expected)
        with pytest.raises(AssertionError, match="not exact"), role.full_precision_weights():
            pass
    assert all(p.is_meta for p in meta_copy.module.parameters()) and not meta_copy.in_use


def test_weights_set_from_outside_arrive() -> None:
    role, other = boosted(Actor(tiny_model("qwen2-tied"))), Actor(tiny_model("qwen2-tied", seed=1))
    role.load_weights(other.state_dict())
    for name, weight in other.named_parameters():
        assert torch.equal(whole(role)[name], weight)

    def zero_norms(module: Any) -> None:
        with torch.no_grad():
            module.model.model.norm.weight.zero_()

    role.change(zero_norms)
    assert not whole(role)["model.model.norm.weight"].any()
    with torch.no_grad():  # tied weights are tied in the whole module, too
        with role.full_weights() as module:
            head, embedding = (getattr(module.model, f"get_{kind}_embeddings")() for kind in ("output", "input"))
            assert head.weight is embedding.weight


def test_booster_saves_and_loads(tmp_path) -> None:
    first, second = boosted(Actor(tiny_model())), boosted(Actor(tiny_model(seed=1)))
    first.learn([lambda: loss(first)])
    for role, kind in ((first, "save"), (second, "load")):
        getattr(role.booster, f"{kind}_model")(role.model, str(tmp_path / "model.bin"))
        getattr(role.booster, f"{kind}_optimizer")(role.optimizer, str(tmp_path / "optimizer.bin"))
    assert all(torch.equal(weight, whole(first)[name]) for name, weight in whole(second).items())
    for role in (first, second):
        role.learn([lambda role=role: loss(role)])
    assert all(torch.equal(weight, whole(first)[name]) for name, weight in whole(second).items())
    plain = Actor(tiny_model(seed=2))
    plain.load_state_dict(torch.load(tmp_path / "model.bin", weights_only=True), strict=False)
    with pytest.raises(UserError, match="shard=False"):
        first.booster.save_model(first.model, str(tmp_path / "many"), shard=True)
    with pytest.raises(UserError, match="another model"):
        second.booster.load_model(boosted(Critic(tiny_model().base_model)).model, str(tmp_path / "model.bin"))
    with pytest.raises(UserError, match="apply_lora"):
        first.booster.plugin.enable_lora(first.model)


def test_numbers_that_trainers_set_reach_what_is_saved() -> None:
    role = boosted(Actor(tiny_model()))
    role.unwrapped.chunk_tokens = 7
    with role.full_precision_weights() as module:
        assert module.chunk_tokens == 7


def test_offloading_reaches_the_optimizer() -> None:
    for plugin, offloads in (("zero2", False), ("zero2_cpu", True)):
        assert boosted(Actor(tiny_model()), plugin).optimizer._cpu_offload is offloads
    parallel = ParallelConfig(plugin="zero1", zero_cpu_offload=True, mixed_precision="fp32")
    assert make_booster(parallel, CPU, 0.0).plugin.zero_optim_kwargs["cpu_offload"] is True
