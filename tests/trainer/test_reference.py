"""A reference that follows the actor: when it moves, where to, what becomes of the optimizer, and that a resumed run has it too.
(Several processes: `tests/distributed/test_plugins.py`.)"""

from pathlib import Path
from typing import Any

import pytest
import torch
from plugins_worker import LAYOUTS, make
from tiny_models import VOCAB, ragged, tiny_model
from trainer_harness import StopAfter, loader, make_trainer, weights
from transformers import LlamaConfig, LlamaForCausalLM

from rlvr.checkpoint.storage import list_checkpoints
from rlvr.errors import UserError
from rlvr.models.batch import collate
from rlvr.models.lora_config import LoraSettings
from rlvr.trainer.base import Interrupted
from rlvr.trainer.callbacks import Callback

pytestmark = pytest.mark.usefixtures("process")
EVERY = [(plugin, precision) for precision, plugins in LAYOUTS.items() for plugin in plugins]


class Watch(Callback):
    """Of each episode: the divergence of what was sampled, and weights of actor and reference at its end, after a reset."""

    def __init__(self) -> None:
        self.kl: list[float] = []
        self.actor: list[torch.Tensor] = []
        self.reference: list[torch.Tensor] = []

    def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
        self.kl.append(metrics["objective/kl"])
        with trainer.actor.full_precision_weights() as actor:
            self.actor.append(torch.cat([p.detach().flatten() for p in actor.parameters()]))
        self.reference.append(torch.cat([p.flatten() for p in trainer.maker.reference.weights().values()]))


def watched(episodes: int, **changes: Any) -> Watch:
    watch = Watch()
    make_trainer(callbacks=[watch], **({"kl_coef": 0.05} | changes)).fit(episodes, 1, 1, loader())
    return watch


def test_the_reference_becomes_the_actor_every_so_many_episodes() -> None:
    seen = watched(5, reference_reset_interval=2)
    start = torch.cat([p.detach().flatten() for p in tiny_model().parameters()])
    # Nothing has moved in the first episode; the third and fifth begin where the reference has just become the actor.
    assert [kl == 0 for kl in seen.kl] == [True, False, True, False, True]
    now = [start, seen.actor[1], seen.actor[1], seen.actor[3], seen.actor[3]]
    assert all(map(torch.equal, seen.reference, now))
    assert not torch.equal(seen.actor[1], seen.actor[3])


def test_a_part_of_the_actor_makes_a_moving_average() -> None:
    seen = watched(3, reference_reset_interval=1, reference_mix=0.25)
    average = torch.cat([p.detach().flatten() for p in tiny_model().parameters()])
    for actor, reference in zip(seen.actor, seen.reference, strict=True):
        average = average + 0.25 * (actor - average)
        torch.testing.assert_close(reference, average, rtol=1e-6, atol=1e-8)
    assert seen.kl[0] == 0 and seen.kl[1] != 0 and seen.kl[2] != 0


@pytest.mark.parametrize("mix", [1.0, 0.5])
def test_the_optimizer_begins_anew_where_the_reference_becomes_the_actor(mix: float) -> None:
    trainer = make_trainer(kl_coef=0.05, reference_reset_interval=2, reference_mix=mix)
    trainer.fit(2, 1, 1, loader())
    states = [role.training_state()["optimizer"]["state"] for role in (trainer.actor, trainer.critic)]
    assert bool(states[0]) is (mix < 1) and states[1], "the critic's goes on"


@pytest.mark.parametrize(("plugin", "precision"), EVERY)
def test_an_optimizer_that_begins_anew_steps_as_a_new_one(plugin: str, precision: str) -> None:
    batch = collate(*ragged())
    roles = [make(plugin, precision).actor for _ in range(2)]
    old, new = roles
    for role in roles:
        role.lr_scheduler = None
    for factor in (1.0, -0.5, 2.0):
        old.learn([lambda f=factor: old.forward(batch).logprobs.mean() * f])
    old.forget_moments()
    untouched = new.training_state()["optimizer"]
    with old.full_precision_weights() as module:
        new.load_weights({name: t.clone() for name, t in module.state_dict().items()})
    new.load_training_state(old.training_state() | {"optimizer": untouched})
    ends = []
    for role in roles:
        role.learn([lambda role=role: role.forward(batch).logprobs.square().mean()])
        with role.full_precision_weights() as module:
            ends.append(torch.cat([p.detach().flatten().clone() for p in module.parameters()]))
    assert torch.equal(*ends)


@pytest.mark.parametrize(
    ("plugin", "precision", "mix"),
    [
        ("ddp", "fp32", 1.0),
        ("ddp", "bf16", 0.3),
        ("zero2", "bf16", 1.0),
        ("fsdp", "fp32", 0.3),
        ("gemini", "bf16", 1.0),
    ],
)
def test_a30_a_stopped_run_goes_on_with_the_reference_that_it_had(
    plugin: str, precision: str, mix: float, tmp_path: Path
) -> None:
    named = {"plugin": plugin, "precision": precision, "kl_coef": 0.05}
    follows = {"settings": {"reference_reset_interval": 1, "reference_mix": mix}}
    ends = []
    for stop in (None, 7, 10):  # after the first of two collect steps of the second episode, and in its updates
        folder = tmp_path / str(stop)
        folder.mkdir()
        trainer = make_trainer(folder, callbacks=[StopAfter(stop)] if stop else [], **named, **follows)
        try:
            trainer.fit(3, 2, 1, loader())
        except Interrupted as interrupted:
            saved = Path(interrupted.checkpoint)
            assert (saved / "reference").is_dir()
            trainer = make_trainer(folder, **named, **follows)
            trainer.load_checkpoint(saved)
            trainer.fit(3, 2, 1, loader())
        reference = torch.cat([p.flatten() for p in trainer.maker.reference.weights().values()])
        ends.append((weights(trainer), reference))
        assert not (folder / "reference").exists(), "it is no result"
    for end in ends[1:]:
        assert torch.equal(end[0], ends[0][0]) and torch.equal(end[1], ends[0][1])


def test_a35_a_reference_that_stays_is_in_no_checkpoint(tmp_path: Path) -> None:
    make_trainer(tmp_path).fit(1, 1, 1, loader())
    assert not list(tmp_path.rglob("reference"))
    assert {f.name for f in list_checkpoints(tmp_path)[-1].iterdir()} >= {"actor", "critic"}


def test_a_reference_that_can_not_follow_is_refused() -> None:
    follows = {"reference_reset_interval": 1}
    with pytest.raises(UserError, match="at kl_coef 0 there is none"):
        make_trainer(kl_coef=0.0, initial_model=None, **follows)
    with pytest.raises(UserError, match="with LoRA it is not made of the actor's weights"):
        make_trainer(kl_coef=0.05, lora=LoraSettings(r=4), **follows)
    other = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, pad_token_id=1
        )
    )  # fmt: skip
    with pytest.raises(UserError, match="is another model than the actor"):
        make_trainer(kl_coef=0.05, initial_model=other, **follows)
    rounds = {"plugin": "zero2", "precision": "bf16", "kl_coef": 0.05, **follows}
    with pytest.raises(UserError, match="reference_mix 0.3 would be lost in rounding.*--mixed_precision fp32"):
        make_trainer(reference_mix=0.3, **rounds)
    make_trainer(**rounds)
