"""A value head on the actor's own trunk: against an oracle that forms both losses by hand, and through whole runs."""

import json
from pathlib import Path

import pytest
import torch
from tiny_models import FAMILIES, tiny_model
from trainer_harness import CPU, StopAfter, experience, loader, make_trainer, settings_of, weights
from transformers import AutoModelForCausalLM

from rlvr.boost.boosted import Boosted
from rlvr.boost.plugins import make_booster
from rlvr.checkpoint import storage as checkpoint
from rlvr.cli.main import main
from rlvr.config import ParallelConfig, from_dict
from rlvr.core.losses import StepSize
from rlvr.errors import UserError
from rlvr.models.actor import Actor, ActorWithValues
from rlvr.models.batch import collate
from rlvr.models.critic import Critic
from rlvr.models.lora_config import LoraSettings
from rlvr.models.value_head import HEAD_FILE
from rlvr.run.parts import make_models
from rlvr.tracking.meter import Meter
from rlvr.trainer.base import Interrupted
from rlvr.trainer.ppo_update import Learner, Step, train_actor
from rlvr.validate.ppo import check_config, plan_batches

pytestmark = pytest.mark.usefixtures("process")
BATCH = collate([torch.tensor([5, 6, 7]), torch.tensor([8])], [torch.tensor([9, 10]), torch.tensor([11, 12, 1])])
PLAN = (3, 2, 1)  # episodes, collect steps, passes: 4 optimizer steps of 16 in each
LORA = LoraSettings(r=4, lora_alpha=16, target_modules="all-linear")
OPTIONS = {
    "ddp": {},
    "zero1": {"plugin": "zero1"},
    "zero2 bf16": {"plugin": "zero2", "precision": "bf16"},
    "lora": {"lora": LORA},
    "lora zero2": {"lora": LORA, "plugin": "zero2"},
}


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_are_the_actor_s_and_values_a_critic_s_on_the_same_trunk(family) -> None:
    both, critic = ActorWithValues(tiny_model(family), seed=3), Critic(tiny_model(family).base_model, seed=3)
    out, values = both(BATCH, 0.7), critic(BATCH)
    plain = Actor(tiny_model(family))(BATCH, 0.7)
    assert torch.equal(out.logprobs, plain.logprobs) and torch.equal(out.entropy, plain.entropy)
    assert plain.values is None and plain.last_values is None
    torch.testing.assert_close(out.values, values.values)
    torch.testing.assert_close(out.last_values, values.last_values)


def test_values_come_with_a_head_that_is_more_than_a_matrix() -> None:
    model = tiny_model()
    forward = model.forward

    def scaled(*args, **kwargs):
        out = forward(*args, **kwargs)
        out.logits = out.logits * 3
        return out

    model.forward = scaled
    both = ActorWithValues(model, seed=3)
    assert not both._plain_head
    torch.testing.assert_close(both(BATCH).values, Critic(tiny_model().base_model, seed=3)(BATCH).values)


def boosted(plugin: str) -> Boosted:
    actor = ActorWithValues(tiny_model())
    optimizer = torch.optim.SGD(actor.parameters(), lr=1.0)
    return Boosted(make_booster(ParallelConfig(plugin=plugin, mixed_precision="fp32"), CPU, 0.0), actor, optimizer)


def oracle_gradient(items, vf_coef: float, ptx: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Both losses, response by response and by their formulas, on one plain model with full logits."""
    actor = ActorWithValues(tiny_model())
    tokens = sum(int(i.mask.sum()) for i in items)
    total = torch.zeros(())
    for item in items:
        ids = torch.cat([item.prompt_ids, item.response_ids])
        out = actor.model(ids[None], output_hidden_states=True)
        start = len(item.prompt_ids) - 1
        states = out.hidden_states[-1][0, start:-1]
        new = out.logits[0, start:-1].log_softmax(-1).gather(1, item.response_ids[:, None])[:, 0]
        ratio = (new - item.logprobs).exp()
        policy = -torch.minimum(ratio * item.advantages, ratio.clamp(0.8, 1.2) * item.advantages)
        values = states @ actor.value_head.weight[0] + actor.value_head.bias
        near = torch.clamp(values, item.values - 0.2, item.values + 0.2)
        value = 0.5 * torch.maximum((values - item.returns) ** 2, (near - item.returns) ** 2)
        total = total + ((policy + vf_coef * value) * item.mask).sum() / tokens
    for ids in ptx:
        logits = actor.model(ids[None]).logits[0, :-1].log_softmax(-1)
        total = total - 0.5 * logits.gather(1, ids[1:, None]).mean()
    total.backward()
    return {name: p.grad for name, p in actor.named_parameters()}


@pytest.mark.parametrize("plugin", ["ddp", "zero1", "zero2"])
@pytest.mark.parametrize(("micro", "with_ptx"), [(8, False), (2, False), (8, True)])
def test_one_backward_pass_gives_the_gradient_of_both_losses(plugin, micro, with_ptx) -> None:
    items, ptx = experience(), [torch.tensor([3, 4, 5, 6])] if with_ptx else []
    config = settings_of(vf_coef=0.3, ptx_coef=0.5 if ptx else 0.0)
    actor, meter = boosted(plugin), Meter()
    before = {name: p.detach().clone() for name, p in actor.unwrapped.named_parameters()}
    learner = Learner(config, actor, None)
    batches = [learner.make_micro_batch(items[i : i + micro]) for i in range(0, len(items), micro)]
    more = [collate([ids[:1]], [ids[1:]]) for ids in ptx]
    size = learner.total_size([i.mask for i in items])
    train_actor(actor, batches, Step(config, 0.0, meter, size, ptx_size=StepSize(tokens=3.0, sequences=1.0)), more)
    want = oracle_gradient(items, 0.3, ptx)
    for name, p in actor.unwrapped.named_parameters():
        torch.testing.assert_close(before[name] - p.detach(), want[name], atol=2e-6, rtol=1e-4)
    assert want["value_head.weight"].norm() > 0
    assert {"train/actor_loss", "train/critic_loss", "loss/value_avg"} < meter.means().keys()


def test_it_learns(tmp_path) -> None:
    make_trainer(tmp_path, shared=True, lr=1e-2, vf_coef=0.1).fit(12, 2, 1, loader())
    metrics = rows(tmp_path)
    assert metrics[-1]["objective/scores"] > metrics[0]["objective/scores"] + 0.15
    assert (
        abs(metrics[-1]["value"] - metrics[-1]["objective/scores"]) < 0.1 < metrics[-1]["value"] - metrics[0]["value"]
    )
    assert "train/critic_loss" in metrics[0] and "train/lr_critic" not in metrics[0]


@pytest.mark.parametrize("options", OPTIONS)
def test_a30_a_stopped_run_goes_on_as_if_nothing_had_happened(options, tmp_path) -> None:
    arguments = {"shared": True, **OPTIONS[options]}
    whole = make_trainer(**arguments)
    whole.fit(*PLAN, loader())
    with pytest.raises(Interrupted) as interrupted:
        make_trainer(tmp_path, callbacks=[StopAfter(11)], **arguments).fit(*PLAN, loader())
    again = make_trainer(tmp_path, **arguments)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit(*PLAN, loader())
    assert whole.critic is None and torch.equal(weights(again), weights(whole))


def test_what_is_saved(tmp_path) -> None:
    trainer = make_trainer(tmp_path, shared=True)
    trainer.fit(1, 1, 1, loader())
    folder = tmp_path / "actor" / "modeling"
    assert not (tmp_path / "critic").exists()
    plain = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.equal(Actor(plain)(BATCH).logprobs, trainer.actor.forward(BATCH).logprobs)
    again = ActorWithValues(plain)
    again.value_head.load(folder)
    assert torch.equal(again(BATCH).values, trainer.actor.forward(BATCH).values)
    (checkpoint.list_checkpoints(tmp_path)[-1] / "actor" / "modeling" / HEAD_FILE).unlink()
    with pytest.raises(UserError, match="damaged"):
        make_trainer(tmp_path, shared=True).load_checkpoint(checkpoint.list_checkpoints(tmp_path)[-1])


def test_a_run_goes_on_with_the_head_of_an_earlier_one(tmp_path) -> None:
    actor = ActorWithValues(tiny_model(), seed=7)
    actor.save_pretrained(tmp_path)
    model = {"pretrain": str(tmp_path), "share_trunk": True}
    config = from_dict({"model": model, "reward": {"reward_functions": ["gsm8k_reward_fn"]}})
    fresh = make_models(config, plan_batches(config, 1), CPU)
    config.model.checkpoint_path = str(tmp_path)
    check_config(config)
    models = make_models(config, plan_batches(config, 1), CPU)
    assert models.critic is models.critic_optim is None
    assert torch.equal(models.actor.value_head.weight, actor.value_head.weight)
    assert not torch.equal(fresh.actor.value_head.weight, actor.value_head.weight)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": {"estimator": "grpo"}, "num_generations": 2}, "'grpo' reads no values.*Actor instead"),
        ({"settings": {"critic_warmup_steps": 2}}, "no critic of its own"),
        ({"settings": {"old_logprobs": "sampled"}}, "makes anyway.*'recompute'"),
    ],
)
def test_arguments_that_do_not_go_together(changes, said) -> None:
    with pytest.raises(UserError, match=said):
        make_trainer(shared=True, **changes)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--preset grpo --num_generations 8", "--preset grpo: estimator grpo reads no values"),
        ("--critic_lr 0.1", "--critic_lr 0.1 has no effect with --share_trunk"),
        ("--rm_pretrain elsewhere", "--rm_pretrain elsewhere has no effect with --share_trunk"),
        ("--critic_checkpoint_path elsewhere", "--critic_checkpoint_path elsewhere has no effect with --share_trunk"),
        ("--critic_warmup_steps 3", "give --critic_warmup_steps 0"),
        ("--preset vapo", "give --value_pretraining_episodes 0"),
        ("--old_logprobs sampled", "--old_logprobs sampled saves a forward pass"),
    ],
)
def test_flags_that_do_not_go_together(flags, said, capsys, tmp_path) -> None:
    words = [
        "--reward_functions",
        "gsm8k_reward_fn",
        "--share_trunk",
        *flags.split(),
        "--save_path",
        str(tmp_path / "run"),
    ]
    assert main(["train", *words]) == 2
    captured = capsys.readouterr()
    assert said in " ".join(captured.err.split()) and "Traceback" not in captured.err
