"""One optimizer step of actor and critic against the slow oracle, however the step is cut up."""

import copy
import math
from functools import partial
from typing import Any

import pytest
import torch
from reference import ReferenceSample, kl_estimate, reference_step
from tiny_models import tiny_model
from trainer_harness import experience, settings_of

from rlvr.boost.boosted import Boosted
from rlvr.boost.optimizer import lr_schedule, make_optimizer
from rlvr.boost.plugins import make_booster
from rlvr.config import Config, ParallelConfig
from rlvr.config.shared import StepConfig
from rlvr.core.losses import StepSize, cispo_loss, clipped_policy_loss, sapo_loss
from rlvr.experience.experience import Experience
from rlvr.models.actor import Actor, ActorOutput
from rlvr.models.batch import collate
from rlvr.models.critic import Critic
from rlvr.tracking.meter import Meter
from rlvr.trainer.ppo_update import Learner, MicroBatch, Step, policy_loss, train_actor, train_critic

pytestmark = pytest.mark.usefixtures("process")
CPU = torch.device("cpu")


def roles(family: str = "llama", plugin: str = "ddp", lr: float = 0.1, clip: float = 0.0) -> tuple[Boosted, Boosted]:
    """Actor and critic under plain SGD, so that a step shows the gradient."""
    model = tiny_model(family)
    actor, critic = Actor(model), Critic(copy.deepcopy(model.base_model), seed=1)
    parallel = ParallelConfig(plugin=plugin, mixed_precision="fp32")
    boosted = [
        Boosted(make_booster(parallel, CPU, clip), role, torch.optim.SGD(role.parameters(), lr=lr), grad_clip=clip)
        for role in (actor, critic)
    ]
    return boosted[0], boosted[1]


def learn(actor: Boosted, critic: Boosted, items: list[Experience], micro: int, config: Config) -> dict:
    meter = Meter()
    learner = Learner(config, actor, critic)
    step = Step(config, config.algo.kl_coef, meter, learner.total_size([i.mask for i in items]))
    batches = [learner.make_micro_batch(items[i : i + micro]) for i in range(0, len(items), micro)]
    train_actor(actor, batches, step)
    train_critic(critic, batches, step)
    return meter.means()


def flat(role: Boosted) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in role.unwrapped.parameters()])


SETTINGS = {"temperature": 0.9, "eps_clip": 0.1, "eps_clip_high": 0.3, "dual_clip": 3.0, "max_new_tokens": 16}


@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "constant"])
def test_a01_a18_a19_losses_equal_the_oracle(reduction) -> None:
    settings = settings_of(**SETTINGS, loss_reduction=reduction)
    actor, critic = roles()
    items = experience()
    batch = collate([i.prompt_ids for i in items], [i.response_ids for i in items])
    new = actor.unwrapped(batch, settings.rollout.temperature).logprobs
    values = critic.unwrapped(batch).values
    rows = [
        (
            ReferenceSample(
                logprobs=i.logprobs.tolist(), values=i.values.tolist(), rewards=[], advantages=i.advantages.tolist(),
                returns=i.returns.tolist(), mask=i.mask.tolist(),
            ),
            new[row, : len(i.logprobs)].tolist(),
            values[row, : len(i.logprobs)].tolist(),
        )
        for row, i in enumerate(items)
    ]  # fmt: skip
    want = reference_step(
        rows, clip_range=0.1, clip_range_high=0.3, dual_clip=3.0, value_clip=0.2, mode=reduction, constant_tokens=16
    )
    got = learn(actor, critic, items, 8, settings)
    assert got["train/actor_loss"] == pytest.approx(want.policy_loss, abs=1e-6)
    assert got["train/critic_loss"] == pytest.approx(want.value_loss, abs=1e-6)
    assert got["policy/clipfrac_avg"] == pytest.approx(want.clip_fraction)
    assert got["val/clipfrac_avg"] == pytest.approx(want.value_clip_fraction)
    assert got["policy/approxkl_avg"] == pytest.approx(want.approx_kl, abs=1e-6)
    assert got["val/ratio"] == pytest.approx(want.ratio, abs=1e-6)


@pytest.mark.parametrize("plugin", ["ddp", "zero1", "zero2"])
@pytest.mark.parametrize("reduction", ["token_mean", "sequence_mean", "constant"])
def test_a20_the_step_does_not_depend_on_how_it_is_cut_into_micro_batches(plugin, reduction) -> None:
    settings = settings_of(**SETTINGS, loss_reduction=reduction, entropy_coef=0.01)
    results = []
    for micro in (8, 4, 2, 1):
        actor, critic = roles(plugin=plugin)
        learn(actor, critic, experience(masked=3), micro, settings)
        results.append((flat(actor), flat(critic)))
    for actor_weights, critic_weights in results[1:]:
        torch.testing.assert_close(actor_weights, results[0][0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(critic_weights, results[0][1], atol=1e-6, rtol=1e-5)


def test_a20_the_check_above_sees_a_mean_of_means() -> None:
    """Ragged micro-batches weigh tokens unequally under a mean of means: the sizes must make a difference here."""
    items = experience()
    sizes = {sum(len(i.response_ids) for i in items[k : k + 2]) for k in range(0, 8, 2)}
    assert len(sizes) > 1


@pytest.mark.parametrize("plugin", ["ddp", "zero2"])
def test_a23_gradients_are_clipped_once_after_accumulation(plugin) -> None:
    free, _ = roles(plugin=plugin)
    before = flat(free)
    learn(free, roles()[1], experience(), 2, settings_of(**SETTINGS))
    step = flat(free) - before
    clipped, _ = roles(plugin=plugin, clip=0.2)
    metrics = learn(clipped, roles()[1], experience(), 2, settings_of(**SETTINGS))
    assert metrics["grad_norm/actor"] == pytest.approx(step.norm().item() / 0.1, rel=1e-4)  # the norm before clipping
    moved = flat(clipped) - before
    assert moved.norm().item() == pytest.approx(0.1 * 0.2, rel=1e-3)
    torch.testing.assert_close(moved / moved.norm(), step / step.norm(), atol=1e-4, rtol=1e-3)


def test_a25_a_batch_without_a_trained_token_changes_nothing_and_is_no_nan() -> None:
    actor, critic = roles()
    before = flat(actor), flat(critic)
    items = [Experience(**{**i.tensors(), "mask": torch.zeros_like(i.mask)}) for i in experience()]
    metrics = learn(actor, critic, items, 4, settings_of(**SETTINGS))
    assert torch.equal(flat(actor), before[0]) and torch.equal(flat(critic), before[1])
    assert all(v == v for v in metrics.values())


def test_a15_divergence_in_the_loss_pulls_towards_the_reference() -> None:
    """With no advantages, only the KL term moves the policy: its logprobs approach the reference's."""
    items = [
        Experience(**{**i.tensors(), "advantages": torch.zeros_like(i.advantages), "ref_logprobs": i.logprobs + 1.0})
        for i in experience()
    ]
    settings = settings_of(kl_in="loss", kl_coef=0.5, kl_estimator="k3")
    actor, critic = roles(lr=0.5)
    first = learn(actor, critic, items, 8, settings)["loss/kl_avg"]
    for _ in range(5):
        last = learn(actor, critic, items, 8, settings)["loss/kl_avg"]
    assert last < first
    still, critic = roles(lr=0.5)
    before = flat(still)
    learn(still, critic, items, 8, settings_of(kl_in="reward", kl_coef=0.5))
    assert torch.equal(flat(still), before)  # in the reward it has no place in the loss


@pytest.mark.parametrize("given", [None, "k2", "k3"])
def test_a15_the_divergence_in_the_loss_equals_the_oracle(given) -> None:
    """After the policy has moved from the one that sampled; the default is the estimate that is right there."""
    items = experience()
    settings = settings_of(kl_in="loss", kl_coef=0.5, kl_estimator=given)
    actor, critic = roles()
    batch = collate([i.prompt_ids for i in items], [i.response_ids for i in items])
    new = actor.unwrapped(batch, 1.0).logprobs
    want = [
        kl_estimate(float(new[row, t]), float(i.ref_logprobs[t]), given or "k3_weighted", float(i.logprobs[t]))
        for row, i in enumerate(items)
        for t in range(len(i.logprobs))
    ]
    got = learn(actor, critic, items, 8, settings)["loss/kl_avg"]
    assert got == pytest.approx(sum(want) / len(want), rel=1e-5)


@pytest.mark.parametrize(("coef", "rises"), [(0.5, True), (-0.5, False)])
def test_the_entropy_bonus_raises_the_entropy(coef: float, rises: bool) -> None:
    """With no advantages, only the bonus moves the policy."""
    items = [Experience(**{**i.tensors(), "advantages": torch.zeros_like(i.advantages)}) for i in experience()]
    batch = collate([i.prompt_ids for i in items], [i.response_ids for i in items])
    actor, critic = roles(lr=0.5)
    with torch.no_grad():
        before = actor.unwrapped(batch).entropy[batch.response_mask].mean()
    learn(actor, critic, items, 8, settings_of(entropy_coef=coef))
    with torch.no_grad():
        after = actor.unwrapped(batch).entropy[batch.response_mask].mean()
    assert (after > before) == rises


def positive_experience() -> list[Experience]:
    """Every third response is right, and one of those is not trained on."""
    return [
        Experience(**{**item.tensors(), "positive": torch.full_like(item.mask, index % 3 == 0)})
        for index, item in enumerate(experience(masked=6))
    ]


def learn_positive(items: list[Experience], micro: int, config: Config) -> tuple[torch.Tensor, dict]:
    actor, _ = roles()
    meter, learner = Meter(), Learner(config, actor, None)
    size = learner.total_size([i.mask for i in items])
    step = Step(config, 0.0, meter, size, positives=learner.total_size([i.mask & i.positive for i in items]))
    train_actor(actor, [learner.make_micro_batch(items[i : i + micro]) for i in range(0, len(items), micro)], step)
    return flat(actor), meter.means()


def test_a20_right_responses_are_imitated_by_the_mean_over_their_tokens() -> None:
    """The gradient of coef x mean negative log-likelihood of the right, trained responses' tokens, however it is cut."""
    coef, items = 0.3, positive_experience()
    with_lm = settings_of(**SETTINGS, positive_lm_coef=coef)
    plain, _ = learn_positive(items, 8, settings_of(**SETTINGS))
    got, metrics = learn_positive(items, 8, with_lm)
    right = [items[0], items[3]]  # items[6] is right too, and not trained on
    actor, _ = roles()
    batch = collect_batch(right)
    logprobs = actor.unwrapped(batch, with_lm.rollout.temperature).logprobs
    nll = -logprobs[batch.response_mask].sum() / sum(len(i.response_ids) for i in right)
    gradients = torch.autograd.grad(nll, list(actor.unwrapped.parameters()))
    want = -0.1 * coef * torch.cat([g.flatten() for g in gradients])
    torch.testing.assert_close(got - plain, want, atol=2e-6, rtol=1e-4)
    assert metrics["loss/positive_lm_avg"] == pytest.approx(nll.item(), abs=1e-5)
    for micro in (4, 2, 1):
        torch.testing.assert_close(learn_positive(items, micro, with_lm)[0], got, atol=1e-6, rtol=1e-5)


def collect_batch(items: list[Experience]):
    return collate([i.prompt_ids for i in items], [i.response_ids for i in items])


def test_importance_weights_scale_each_tokens_policy_loss_and_nothing_else() -> None:
    items = experience()
    settings = settings_of(entropy_coef=0.01)
    corrected = settings_of(entropy_coef=0.01, mismatch_correction="truncate")
    moves = []
    for weight in (None, 1.0, 0.5):
        sampler = {} if weight is None else {"sampler_logprobs": [i.logprobs - math.log(weight) for i in items]}
        weighted = [
            Experience(**i.tensors(), **{name: rows[n] for name, rows in sampler.items()}) for n, i in enumerate(items)
        ]
        actor, critic = roles()
        before = flat(actor)
        learn(actor, critic, weighted, 4, settings if weight is None else corrected)
        moves.append(flat(actor) - before)
    actor, critic = roles()
    before = flat(actor)
    still = [Experience(**{**i.tensors(), "advantages": torch.zeros_like(i.advantages)}) for i in items]
    learn(actor, critic, still, 4, settings)
    entropy = flat(actor) - before
    assert torch.equal(moves[0], moves[1])
    torch.testing.assert_close(moves[2] - entropy, 0.5 * (moves[0] - entropy), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("micro", [4, 1])
def test_a20_the_sequence_ratio_does_not_depend_on_the_micro_batches(micro) -> None:
    settings = settings_of(ratio="sequence", eps_clip=0.05, loss_reduction="sequence_mean")
    results = []
    for size in (8, micro):
        actor, critic = roles()
        metrics = learn(actor, critic, experience(masked=3), size, settings)
        results.append((flat(actor), metrics["policy/clipfrac_avg"], metrics["policy/approxkl_avg"]))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-6, rtol=1e-5)
    assert results[0][1:] == pytest.approx(results[1][1:], abs=1e-6) and 0 < results[0][1] < 1


def test_ptx_loss_is_added_and_leaves_the_policy_loss_alone() -> None:

    items, settings = experience(), settings_of(ptx_coef=0.5)
    rows = collate([torch.tensor([3, 4])], [torch.tensor([5, 6, 7])])
    size = StepSize(tokens=3.0, sequences=1.0)
    moves = []
    for policy, ptx in ((True, False), (False, True), (True, True)):
        actor, _ = roles()
        before = flat(actor)
        used = items if policy else [Experience(**{**i.tensors(), "mask": torch.zeros_like(i.mask)}) for i in items]
        learner = Learner(settings, actor, None)
        step = Step(settings, 0.0, Meter(), learner.total_size([i.mask for i in used]), ptx_size=size)
        train_actor(actor, [learner.make_micro_batch(used)], step, [rows] if ptx else ())
        moves.append(flat(actor) - before)
    torch.testing.assert_close(moves[0] + moves[1], moves[2], atol=1e-6, rtol=1e-4)
    assert moves[1].norm() > 0


@pytest.mark.parametrize(
    ("flags", "loss"),
    [
        (
            {"policy_loss": "ppo", "eps_clip": 0.1, "dual_clip": 1.5},
            partial(clipped_policy_loss, clip_range=0.1, dual_clip=1.5),
        ),
        (
            {"policy_loss": "cispo", "eps_clip": 0.3, "eps_clip_high": 0.1},
            partial(cispo_loss, clip_range=0.3, clip_range_high=0.1),
        ),
        ({"policy_loss": "sapo", "tau_pos": 0.5, "tau_neg": 3.0}, partial(sapo_loss, tau_pos=0.5, tau_neg=3.0)),
    ],
)
def test_the_policy_loss_is_the_one_that_is_named(flags: dict[str, Any], loss: Any) -> None:
    settings = settings_of(**flags)
    new, old, advantages = (torch.randn(2, 4, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    mask = torch.tensor([[True, True, True, False], [True, True, False, False]])
    sequences = collate([torch.tensor([3])] * 2, [torch.arange(3) + 4, torch.arange(2) + 4])
    batch = MicroBatch(sequences, old, old, advantages, mask)
    total = policy_loss(ActorOutput(new, new), batch, Step(settings, 0.0, Meter(), StepSize(tokens=5, sequences=2)))
    assert total.item() == pytest.approx(loss(new, old, advantages).loss[mask].mean().item())


@pytest.mark.parametrize(
    ("kind", "expected"), [("top_entropy", -3.0), ("clip_cov", -5.0), ("kl_cov", -8.0 + 0.5 * 0.25)]
)
def test_entropy_control_learns_from_its_tokens_alone_or_without_them_or_holds_them_back(
    kind: str, expected: float
) -> None:
    """Two tokens whose ratios are clipped at 1, advantages 3 and 5; the first is chosen, and has moved by 0.25 nats."""
    settings = settings_of(entropy_control=kind, kl_cov_coef=0.5, eps_clip=0.0)
    new, old = torch.tensor([[-1.0, -2.0]]), torch.tensor([[-1.25, -2.5]])
    sequences, mask = collate([torch.tensor([3])], [torch.arange(2) + 4]), torch.ones(1, 2).bool()
    batch = MicroBatch(sequences, old, old, torch.tensor([[3.0, 5.0]]), mask, controlled=torch.tensor([[True, False]]))
    step = Step(settings, 0.0, Meter(), StepSize(tokens=2, sequences=1))
    assert policy_loss(ActorOutput(new, new), batch, step).item() == pytest.approx(expected / 2)


# Rates at the steps 0, 10, 55 and 99 of 100 with 10 of warm-up and a peak of 2, and after the last: by hand.
@pytest.mark.parametrize(
    ("shape", "floor", "expected"),
    [
        ("cosine", 0.1, [2 / 11, 2.0, 2 * 0.55, 2 * (0.55 + 0.45 * math.cos(math.pi * 89 / 90)), 0.2]),
        ("cosine", 0.0, [2 / 11, 2.0, 1.0, 1 + math.cos(math.pi * 89 / 90), 0.0]),
        ("linear", 0.25, [2 / 11, 2.0, 2 * 0.625, 2 * (1 - 0.75 * 89 / 90), 0.5]),
        ("constant", 0.1, [2 / 11, 2.0, 2.0, 2.0, 2.0]),
    ],
)
def test_a22_the_schedule_counts_optimizer_steps(shape: Any, floor: float, expected: list[float]) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = lr_schedule(optimizer, total_steps=100, warmup_steps=10, shape=shape, floor=floor)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    rates.append(optimizer.param_groups[0]["lr"])
    assert [rates[step] for step in (0, 10, 55, 99, 100)] == pytest.approx(expected, abs=1e-12)
    assert rates == sorted(rates[:11]) + sorted(rates[11:], reverse=True)


def test_an_unknown_schedule_is_refused() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2.0)
    with pytest.raises(ValueError, match="'step'.*cosine, linear, constant"):
        lr_schedule(optimizer, 10, shape="step")  # type: ignore[arg-type]


def test_the_settings_of_a_step_reach_optimizer_and_schedule() -> None:
    settings = StepConfig(
        lr_schedule="linear",
        lr_floor=0.5,
        warmup_steps=1,
        weight_decay=0.3,
        adam_beta1=0.8,
        adam_beta2=0.7,
        adam_eps=0.1,
    )
    role = torch.nn.Linear(1, 1)
    optimizer, schedule = make_optimizer(role, settings, 4.0, 3, "fp32")
    group = optimizer.param_groups[0]
    assert (group["betas"], group["eps"], group["weight_decay"], group["lr"]) == ((0.8, 0.7), 0.1, 0.3, 2.0)
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [4.0]
    schedule.step()
    schedule.step()
    assert schedule.get_last_lr() == [2.0]
