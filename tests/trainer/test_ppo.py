"""The PPO trainer as a whole: its experience against the oracle, its step counts, its randomness, its reference."""

import json

import pytest
import torch
from reference import Rollout as OracleRollout
from reference import make_experience as oracle_experience
from tiny_models import tiny_model
from trainer_harness import FixedEngine, LetterTokenizer, loader, make_trainer, prompts, weights

from rewards import reward_fn  # noqa: F401  the registry must be importable beside torch
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.tracking.meter import Meter
from rlvr.trainer.callbacks import Callback

pytestmark = pytest.mark.usefixtures("process")

RESPONSES = [(7, 8, 1), (10, 11, 12, 13, 14, 15), (5, 1), (6, 5, 6, 5, 1), (1,), (9, 5, 9, 9)]


def collect(trainer, count=6):
    return trainer.maker.make_experience(prompts(count), Meter(), 0).experience


@pytest.mark.parametrize("truncated", ["terminal", "bootstrap", "mask"])
@pytest.mark.parametrize("kl", [("reward", 0.3), ("loss", 0.2)])
def test_a02_a09_a10_a11_a12_a15_experience_equals_the_oracle(truncated, kl) -> None:
    place, coef = kl
    trainer = make_trainer(
        kl_coef=coef,
        engine=FixedEngine(RESPONSES),
        initial_model=tiny_model(seed=5),
        temperature=0.8,
        settings={"kl_in": place, "truncated": truncated, "gamma": 0.97, "lam": 0.9},
    )
    got = collect(trainer)
    reference = Actor(tiny_model(seed=5))
    from rlvr.models.batch import collate

    rollouts = []
    for item, response in zip(got, RESPONSES, strict=True):
        single = collate([item.prompt_ids], [item.response_ids])
        finished = response[-1] == 1
        values = trainer.critic.unwrapped(single)
        text = LetterTokenizer().decode(response, skip_special_tokens=True)
        continued = (
            truncated == "bootstrap" and not finished
        )  # by the critic's value, which takes the place of the score
        rollouts.append(
            OracleRollout(
                logprobs=trainer.actor.unwrapped(single, 0.8).logprobs[0].tolist(),
                ref_logprobs=reference(single, 0.8).logprobs[0].tolist(),
                values=values.values[0].tolist(),
                score=0.0 if continued else text.count("F") / max(1, len(text)),
                mask=[True] * len(response),
                bootstrap=values.last_values.item() if continued else 0.0,
            )
        )
    paid = coef if place == "reward" else 0.0
    want = oracle_experience(rollouts, kl_coef=paid, gamma=0.97, lam=0.9, whiten_advantages=False)
    for item, sample, response in zip(got, want, RESPONSES, strict=True):
        assert item.advantages.tolist() == pytest.approx(list(sample.advantages), abs=2e-5)
        assert item.returns.tolist() == pytest.approx(list(sample.returns), abs=2e-5)
        assert item.mask.tolist() == [truncated != "mask" or response[-1] == 1] * len(response)


def test_a12_a_value_fitted_to_bootstrapped_returns_stays_where_it_is() -> None:
    """The value after the cut stands for all that follows, the score too: added to it, each fit would raise the value by a score."""
    meter = Meter()
    trainer = make_trainer(
        kl_coef=0.0,
        initial_model=None,
        engine=FixedEngine([(5, 5, 5)]),
        settings={"truncated": "bootstrap", "lam": 1.0},
    )
    items = trainer.maker.make_experience(prompts(4), meter, 0).experience
    last = trainer.maker.run_models(
        trainer.maker.respond(prompts(4), trainer.maker.sampling, {}, 0).rollouts, {}
    ).last_values
    for item, value in zip(items, last, strict=True):
        assert item.returns.tolist() == pytest.approx([value.item()] * 3, abs=1e-6)
    assert meter.means()["objective/scores"] == 1.0  # what it was paid is told all the same


def test_a13_whitening_is_over_all_trained_tokens_and_leaves_returns_alone() -> None:
    trainer = make_trainer(engine=FixedEngine(RESPONSES))
    trainer.buffer.extend(collect(trainer))
    returns = [i.returns.clone() for i in trainer.buffer.items]
    trainer.buffer.whiten_advantages(lambda x: x)
    flat = torch.cat([i.advantages for i in trainer.buffer.items])
    assert flat.mean().item() == pytest.approx(0, abs=1e-6) and flat.var().item() == pytest.approx(1, rel=0.06)
    assert all(torch.equal(i.returns, r) for i, r in zip(trainer.buffer.items, returns, strict=True))


class Recorder(Callback):
    def __init__(self) -> None:
        self.events, self.ratios, self.rows = [], [], []

    def on_learn_batch_end(self, trainer, batch) -> None:
        means = trainer.meter.means()
        self.ratios.append((means["val/ratio"], means["policy/approxkl_avg"]))
        self.events.append("step")

    def on_learn_epoch_start(self, trainer, epoch) -> None:
        self.events.append("epoch")

    def on_episode_end(self, trainer, episode, metrics) -> None:
        self.rows.append(dict(metrics))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a16_the_first_mini_batch_is_on_policy(family) -> None:
    recorder = Recorder()
    make_trainer(family=family, callbacks=[recorder], temperature=0.7).fit(1, 1, 1, loader())
    ratio, approx_kl = recorder.ratios[0]
    assert ratio == pytest.approx(1.0, abs=1e-5) and approx_kl == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("batch", "accumulation", "epochs"), [(16, 1, 3), (8, 2, 2), (32, 1, 1), (4, 1, 2)])
def test_a21_a22_optimizer_steps_are_epochs_times_mini_batches(batch, accumulation, epochs) -> None:
    recorder = Recorder()
    trainer = make_trainer(train_batch_size=batch, accumulation_steps=accumulation, callbacks=[recorder])
    trainer.fit(2, 1, epochs, loader())
    expected = 2 * epochs * 32 // (batch * accumulation)
    assert recorder.events.count("step") == trainer.progress.optimizer_steps == expected
    assert recorder.events.count("epoch") == 2 * epochs
    for role in (trainer.actor, trainer.critic):
        assert role.lr_scheduler.last_epoch == expected
        state = role.optimizer.optim.state
        assert {int(s["step"]) for s in state.values()} == {expected}


def test_learning_raises_the_reward_and_all_metrics_have_their_names(tmp_path) -> None:
    trainer = make_trainer(tmp_path, steps=80)
    trainer.fit(20, 1, 2, loader())
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    early, late = (sum(r["objective/scores"] for r in part) / 5 for part in (rows[:5], rows[-5:]))
    assert late > early + 0.1
    names = (
        "objective/kl objective/entropy objective/non_score_reward objective/rlhf_reward objective/scores "
        "policy/approxkl_avg policy/clipfrac_avg policy/entropy_avg loss/policy_avg loss/value_avg val/clipfrac_avg val/ratio "
        "val/ratio_var val/num_eos_tokens lr episode train/actor_loss train/critic_loss train/lr_actor train/lr_critic "
        "reward approx_kl value time/rollout time/reward time/score time/update"
    )
    assert set(names.split()) <= rows[-1].keys()
    assert [r["episode"] for r in rows] == [32 * (i + 1) for i in range(20)]


def test_a31_metrics_are_means_over_response_tokens_only() -> None:
    """Two long and four short responses: a mean diluted by padding would differ."""
    trainer = make_trainer(engine=FixedEngine(RESPONSES), kl_coef=0.0, initial_model=None)
    meter = Meter()
    items = trainer.maker.make_experience(prompts(6), meter, 0).experience
    means = meter.means()
    flat = torch.cat([i.values for i in items])
    assert means["value"] == pytest.approx(flat.mean().item(), abs=1e-6)
    assert means["objective/entropy"] == pytest.approx(-sum(i.logprobs.sum().item() for i in items) / 6, abs=1e-4)
    assert means["response/length_tokens"] == pytest.approx(sum(map(len, RESPONSES)) / 6)
    assert means["val/num_eos_tokens"] == 4


@pytest.mark.parametrize("truncated", ["terminal", "mask"])
def test_a31_scores_are_those_of_all_that_was_scored(truncated) -> None:
    """Not of the finished responses only, where cut ones are not trained on."""
    meter = Meter()
    trainer = make_trainer(
        engine=FixedEngine([(5, 5, 5), (5, 7, 1), (7, 7, 7), (7, 7, 1)]), settings={"truncated": truncated}
    )
    trainer.maker.make_experience(prompts(4), meter, 0)
    means = meter.means()
    assert means["objective/scores"] == pytest.approx((1 + 0.5 + 0 + 0) / 4)
    assert means["objective/rlhf_reward"] == pytest.approx(
        means["objective/scores"] + means["objective/non_score_reward"]
    )


def test_a26_a_reward_function_is_called_once_for_each_sample() -> None:
    seen = []

    def remember(response: str, response_ids) -> float:
        seen.append(tuple(response_ids))
        return 0.0

    trainer = make_trainer(engine=FixedEngine(RESPONSES), reward_model=RLVRRewardModel([remember], LetterTokenizer()))
    collect(trainer)
    assert seen == RESPONSES


def test_a26_a_sample_that_no_function_applies_to_is_not_trained_on() -> None:
    def only_long(response: str) -> float | None:
        return 1.0 if len(response) > 3 else None

    trainer = make_trainer(engine=FixedEngine(RESPONSES), reward_model=RLVRRewardModel([only_long], LetterTokenizer()))
    trained = [bool(i.mask.any()) for i in collect(trainer)]
    assert trained == [len(LetterTokenizer().decode(r, True)) > 3 for r in RESPONSES]


def test_a28_responses_to_one_prompt_stay_together() -> None:
    trainer = make_trainer(num_generations=4, train_batch_size=8)
    trainer._take_loaders(loader(per_step=8), None)
    trainer._make_experience()
    starts = [tuple(i.prompt_ids.tolist()) for i in trainer.buffer.items]
    assert len(starts) == 32
    assert all(len(set(starts[k : k + 4])) == 1 for k in range(0, 32, 4))


def test_a29_one_seed_gives_one_run_and_another_seed_another() -> None:
    results = []
    for seed in (0, 0, 1):
        torch.rand(3)  # whatever was drawn before does not matter
        trainer = make_trainer(seed=seed)
        trainer.fit(2, 1, 2, loader(seed=seed))
        results.append(weights(trainer))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_a35_the_reference_never_moves() -> None:
    trainer = make_trainer()
    before = [p.clone() for p in trainer.maker.reference.model.parameters()]
    trainer.fit(2, 1, 2, loader())
    after = list(trainer.maker.reference.model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert not any(p.requires_grad for p in after)


def test_no_reference_at_kl_coef_zero() -> None:
    trainer = make_trainer(kl_coef=0.0, initial_model=None)
    assert trainer.maker.reference is None
    trainer.fit(1, 1, 1, loader())


def test_a24_a_buffer_limit_keeps_the_newest() -> None:
    trainer = make_trainer(buffer_limit=16)
    trainer.fit(1, 2, 1, loader())
    assert trainer.progress.optimizer_steps == 1


def test_sampled_mini_batches_draw_with_replacement() -> None:
    trainer = make_trainer(sample_buffer=True)
    trainer.fit(1, 1, 2, loader())
    assert trainer.progress.optimizer_steps == 4


@pytest.mark.parametrize("plugin", ["zero1", "zero2", "zero2_cpu"])
def test_plugins_agree_with_ddp(plugin) -> None:
    results = []
    for name in ("ddp", plugin):
        trainer = make_trainer(plugin=name, engine=FixedEngine(RESPONSES))
        trainer.fit(2, 1, 2, loader())
        results.append(weights(trainer))
    torch.testing.assert_close(*results, atol=2e-4, rtol=1e-3)


def test_bf16_trains_with_float32_weights() -> None:
    trainer = make_trainer(precision="bf16")
    trainer.fit(1, 1, 1, loader())
    assert {p.dtype for p in trainer.actor.unwrapped.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"apply_loss_mask": False}, "apply_loss_mask"),
        ({"use_tp": True}, "use_tp"),
        ({"initial_model": None}, "initial_model"),
        ({"top_q": 3}, "top_q"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(changes, said) -> None:
    with pytest.raises(UserError, match=said):
        make_trainer(**changes)


def test_a_buffer_that_does_not_divide_is_refused() -> None:
    with pytest.raises(UserError, match="divide"):
        make_trainer(train_batch_size=12).fit(1, 1, 1, loader())


def test_save_dir_none_and_save_interval_zero_save_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_trainer(save_interval=0).fit(1, 1, 1, loader())
    assert list(tmp_path.iterdir()) == []


def test_a27_a_penalty_for_truncation_never_makes_truncation_pay() -> None:
    """The same text, ended by itself or cut off: with a larger penalty the cut one is worth less and less."""
    scores = []
    for penalty in (0.0, 0.1, 0.5):
        row = []
        for response in ((5, 5, 5, 1), (5, 5, 5)):
            trainer = make_trainer(
                engine=FixedEngine([response]), settings={"missing_eos_penalty": penalty}, kl_coef=0.0
            )
            meter = Meter()
            trainer.maker.make_experience(prompts(1), meter, 0)
            row.append(meter.means()["objective/scores"])
        scores.append(row)
    finished, cut = zip(*scores, strict=True)
    assert finished == pytest.approx([1.0, 1.0, 1.0]) and cut == pytest.approx([1.0, 0.9, 0.5])
