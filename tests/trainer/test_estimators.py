"""The family on one core: each estimator trains, without a critic where it needs none, and stops and goes on exactly."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import tiny_model
from trainer_harness import FixedEngine, LetterTokenizer, StopAfter, loader, make_trainer, prompts, weights

from rlvr.core.advantages import AdvantageInputs, estimator_names, get_estimator
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.scorers.rules import RLVRRewardModel
from rlvr.tracking.meter import Meter
from rlvr.trainer.base import Interrupted
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.ppo import PPOTrainer

pytestmark = pytest.mark.usefixtures("process")

WITHOUT_CRITIC = [name for name in estimator_names() if not get_estimator(name).critic]


def settings_of(name: str, **changes: Any) -> dict[str, Any]:
    """Arguments of `make_trainer` for an estimator: four responses to each prompt."""
    return {"num_generations": 4, "estimator": name, **changes}


class Rows(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
        self.rows.append(dict(metrics))


@pytest.mark.parametrize("name", WITHOUT_CRITIC)
def test_estimators_without_critic_learn_and_leave_no_trace_of_one(name: str, tmp_path: Path) -> None:
    rows = Rows()
    trainer = make_trainer(tmp_path, steps=64, callbacks=[rows], **settings_of(name))
    assert trainer.critic is None
    trainer.fit(
        32 if name == "remax" else 20, 1, 1, loader(per_step=8)
    )  # its baseline starts at 0, so it starts slower
    early, late = (sum(r["objective/scores"] for r in part) / 5 for part in (rows.rows[:5], rows.rows[-5:]))
    assert late > early + 0.1
    assert not list(tmp_path.rglob("critic*"))
    named = {name for row in rows.rows for name in row}
    assert not {n for n in named if n.startswith(("critic/", "val/clipfrac", "loss/value")) or "critic" in n}
    assert "value" not in named and "policy/approxkl_avg" in named
    again = make_trainer(tmp_path, steps=64, **settings_of(name))
    again.load_checkpoint(sorted((tmp_path / "checkpoints").iterdir())[-1])
    assert torch.equal(weights(again), weights(trainer))


@pytest.mark.parametrize("kind", ["top_entropy", "clip_cov", "kl_cov"])
def test_the_tokens_of_entropy_control_are_a_column_of_the_experience(kind: str) -> None:
    """A quarter of all tokens; the same for the same place in the run."""
    chosen = {"entropy_control": kind, "entropy_share": 0.25, "clip_cov_low": -1e9, "clip_cov_high": 1e9}
    eight = [prompt for prompt in prompts(2) for _ in range(4)]

    def column(*place: int) -> torch.Tensor:
        meter, trainer = Meter(), make_trainer(settings=chosen, **settings_of("grpo"))
        items = trainer.maker.make_experience(eight, meter, *place).experience
        values = torch.cat([item.controlled for item in items]).float()
        share = int(0.25 * len(values)) / len(values)
        assert meter.means()["policy/controlled"] == pytest.approx(share)
        assert values.mean().item() == pytest.approx(share)
        return values

    assert torch.equal(column(0), column(0))


def test_each_estimator_needs_what_it_says() -> None:
    with pytest.raises(UserError, match="num_generations 1 must be at least 2"):
        make_trainer(settings={"estimator": "grpo"})
    with pytest.raises(UserError, match="unknown advantage estimator 'gea'.*Did you mean 'gae'"):
        make_trainer_of_unknown()


def make_trainer_of_unknown() -> None:
    from rlvr.trainer.roles import choose_estimator

    choose_estimator("gea", Actor(tiny_model()), None, 1)


def test_a_critic_that_is_missing_or_one_too_many_is_refused() -> None:
    from rlvr.trainer.roles import choose_estimator

    with pytest.raises(UserError, match="'gae' needs a critic.*rloo"):
        choose_estimator("gae", Actor(tiny_model()), None, 4)
    with pytest.raises(UserError, match="critic=None"):
        choose_estimator("rloo", Actor(tiny_model()), object(), 4)


def test_what_nothing_could_read_is_refused() -> None:
    with pytest.raises(UserError, match="no critic of its own to warm up"):
        make_trainer(settings={"critic_warmup_steps": 3}, **settings_of("grpo"))
    trainer = make_trainer(settings={"positive_lm_coef": 0.1})
    with pytest.raises(UserError, match="--positive_threshold"):  # the harness's function gives scores, not verdicts
        trainer.maker.make_experience(prompts(4), Meter(), 0)


@pytest.mark.parametrize("name", WITHOUT_CRITIC)
def test_a13_whitening_is_on_where_the_estimator_is_meant_for_it(name: str) -> None:
    assert make_trainer(**settings_of(name)).whiten_advantages is name.startswith("reinforce_pp")
    assert make_trainer(whiten_advantages=True, **settings_of(name)).whiten_advantages


def test_an_estimator_is_one_function_as_contributing_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from rlvr.core import advantages as grouped
    from rlvr.core import advantages as registry

    monkeypatch.setattr(registry, "_ESTIMATORS", dict(registry._ESTIMATORS))
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    block = text[text.index("  ```python\n  @estimator(") :].split("```")[1].removeprefix("python\n")
    exec(textwrap.dedent(block), dict(vars(grouped)))
    (name,) = set(estimator_names()) - set(WITHOUT_CRITIC) - {"gae"}
    trainer = make_trainer(**settings_of(name))
    trainer.fit(1, 1, 1, loader(per_step=8))
    assert trainer.critic is None and trainer.progress.optimizer_steps == 2


RESPONSES = [(7, 8, 1), (5, 5, 1), (5, 1), (6, 5, 6, 5, 1), (8, 1), (9, 9, 1), (5, 5, 5, 5, 1), (7, 5, 1)]


def test_a28_a_group_is_the_responses_to_one_prompt() -> None:
    trainer = make_trainer(engine=FixedEngine(RESPONSES), kl_coef=0.0, initial_model=None, **settings_of("dr_grpo"))
    two = [p for p in prompts(2) for _ in range(4)]
    items = trainer.maker.make_experience(two, Meter(), 0).experience
    shares = [
        LetterTokenizer().decode(r, True).count("F") / max(1, len(LetterTokenizer().decode(r, True))) for r in RESPONSES
    ]
    for k in (0, 4):
        mean = sum(shares[k : k + 4]) / 4
        for item, share in zip(items[k : k + 4], shares[k : k + 4], strict=True):
            assert item.advantages.tolist() == pytest.approx([share - mean] * len(item.response_ids), abs=1e-6)


@pytest.mark.parametrize("family", ["llama", "qwen2-tied"])
def test_the_norms_of_scores_are_those_of_the_policy_however_it_is_scored(family: str) -> None:
    """Against all logits at once, in passes of one response or of eight; who does not read them does not pay for them."""
    named = settings_of("optimal_token_baseline", family=family, temperature=0.7)
    two = [p for p in prompts(2) for _ in range(4)]
    advantages = []
    for rows in (1, 8):
        trainer = make_trainer(engine=FixedEngine(RESPONSES), kl_coef=0.0, initial_model=None, batch_size=rows, **named)
        items = trainer.maker.make_experience(two, Meter(), 0).experience
        advantages.append(torch.cat([item.advantages for item in items]))
    torch.testing.assert_close(*advantages, rtol=1e-5, atol=1e-6)

    model, rewards = tiny_model(family), torch.zeros(8, 5)
    norms, mask = torch.zeros(8, 5), torch.zeros(8, 5, dtype=torch.bool)
    for i, (prompt, ids) in enumerate(zip(two, RESPONSES, strict=True)):
        with torch.no_grad():
            logits = model(torch.tensor([[*prompt.ids, *ids]])).logits[0, len(prompt.ids) - 1 : -1] / 0.7
        onehot = torch.nn.functional.one_hot(torch.tensor(ids), logits.size(1))
        norms[i, : len(ids)], mask[i, : len(ids)] = (onehot - logits.softmax(-1)).square().sum(-1), True
        text = LetterTokenizer().decode(ids, True)
        rewards[i, len(ids) - 1] = text.count("F") / max(1, len(text))
    groups = torch.tensor([0] * 4 + [1] * 4)
    inputs = AdvantageInputs(rewards, None, mask, gamma=1.0, lam=1.0, groups=groups, score_norms=norms)
    want = get_estimator("optimal_token_baseline")(inputs).advantages[mask]
    torch.testing.assert_close(advantages[0], want, rtol=1e-4, atol=1e-5)

    other = make_trainer(engine=FixedEngine(RESPONSES), **settings_of("opo"))
    assert (
        other.maker.run_models(other.maker.respond(two, other.maker.sampling, {}, 0).rollouts, {}).squared_probs is None
    )


def test_a28_a_response_without_score_has_no_part_in_its_group_and_is_not_trained_on() -> None:
    def only_long(response: str) -> float | None:
        return float(len(response)) if len(response) > 1 else None

    trainer = make_trainer(
        engine=FixedEngine(RESPONSES),
        kl_coef=0.0,
        initial_model=None,
        reward_model=RLVRRewardModel([only_long], LetterTokenizer()),
        **settings_of("dr_grpo"),
    )
    items = trainer.maker.make_experience([prompts(1)[0]] * 4, Meter(), 0).experience
    scores = [2.0, 2.0, None, 4.0]
    mean = (2 + 2 + 4) / 3
    for item, score in zip(items, scores, strict=True):
        want = 0.0 if score is None else score - mean
        assert item.advantages.tolist() == pytest.approx([want] * len(item.response_ids), abs=1e-6)
        assert item.mask.all().item() is (score is not None)


class GreedyMarks(FixedEngine):
    """Answers a greedy request with the given response, and others in turn."""

    def __init__(self, responses: Any, greedy: tuple[int, ...]) -> None:
        super().__init__(responses)
        self.greedy, self.asked = greedy, 0

    def stream(self, model: Any, prompts: Any, sampling: Any, seed: Any) -> Any:
        if sampling.temperature == 0:
            self.asked += len(prompts)
            yield from FixedEngine([self.greedy]).stream(model, prompts, sampling, seed)
        else:
            yield from super().stream(model, prompts, sampling, seed)


def test_remax_compares_with_one_greedy_response_to_each_prompt() -> None:
    engine = GreedyMarks(RESPONSES, greedy=(5, 6, 6, 6, 1))
    trainer = make_trainer(engine=engine, kl_coef=0.0, initial_model=None, **settings_of("remax"))
    meter = Meter()
    items = trainer.maker.make_experience([p for p in prompts(2) for _ in range(4)], meter, 0).experience
    assert engine.asked == 2 and meter.means()["objective/greedy_scores"] == pytest.approx(0.25)
    for item, response in zip(items, RESPONSES, strict=True):
        text = LetterTokenizer().decode(response, True)
        want = text.count("F") / len(text) - 0.25
        assert item.advantages.tolist() == pytest.approx([want] * len(response), abs=1e-6)


# --- The critic alone ------------------------------------------------------------------------------------------------


def parts(trainer: PPOTrainer) -> tuple[torch.Tensor, torch.Tensor]:
    assert trainer.critic is not None
    roles = (trainer.actor, trainer.critic)
    actor, critic = (torch.cat([p.detach().flatten() for p in r.unwrapped.parameters()]) for r in roles)
    return actor.clone(), critic.clone()


@pytest.mark.parametrize(("warmup", "pretraining", "alone"), [(3, 0, 3), (0, 1, 4), (2, 1, 4), (6, 1, 6), (0, 0, 0)])
def test_a21_a22_only_the_critic_learns_in_its_warm_up_and_pretraining(
    warmup: int, pretraining: int, alone: int
) -> None:
    moved: list[tuple[bool, bool]] = []

    class Watch(Callback):
        def on_learn_batch_start(self, trainer: Any) -> None:
            self.before = parts(trainer)

        def on_learn_batch_end(self, trainer: Any, batch: Any) -> None:
            moved.append(tuple(not torch.equal(a, b) for a, b in zip(self.before, parts(trainer), strict=True)))  # type: ignore[arg-type]

    trainer = make_trainer(
        callbacks=[Watch()],
        settings={"critic_warmup_steps": warmup, "value_pretraining_episodes": pretraining},
    )
    trainer.fit(2, 1, 2, loader())  # 2 episodes x 2 passes x 2 optimizer steps
    assert moved == [(False, True)] * alone + [(True, True)] * (8 - alone)
    assert trainer.progress.optimizer_steps == 8
    assert trainer.critic.lr_scheduler.last_epoch == 8 and trainer.actor.lr_scheduler.last_epoch == 8 - alone


def critic_after(size: int, critic_steps: int) -> tuple[torch.Tensor, int, int]:
    """The critic's weights after one pass over 32 responses, and how many steps actor and critic took."""
    trainer = make_trainer(train_batch_size=size, critic_steps=critic_steps)
    trainer.fit(1, 1, 1, loader())
    return parts(trainer)[1], trainer.actor.lr_scheduler.last_epoch, trainer.critic.lr_scheduler.last_epoch


def test_the_critic_takes_several_steps_in_each_of_the_actors() -> None:
    """Each on a part of the samples: it learns what it would if the actor, too, took steps of so few."""
    alone, actor_steps, critic_steps = critic_after(size=8, critic_steps=1)
    assert (actor_steps, critic_steps) == (4, 4)
    several, actor_steps, critic_steps = critic_after(size=16, critic_steps=2)
    assert (actor_steps, critic_steps) == (2, 4)
    assert torch.equal(several, alone)
    assert not torch.allclose(several, critic_after(size=16, critic_steps=1)[0])


@pytest.mark.parametrize(("asked", "taken"), [(3, 3), (16, 16), (40, 16)])
def test_a_step_of_the_critic_has_at_least_one_sample(asked: int, taken: int) -> None:
    assert critic_after(size=16, critic_steps=asked)[1:] == (2, 2 * taken)


def test_values_are_pretrained_on_plain_returns() -> None:
    """With gamma 1 and no divergence, the plain return at each token is the score."""
    for monte_carlo in (True, False):
        trainer = make_trainer(engine=FixedEngine(RESPONSES), kl_coef=0.0, initial_model=None, settings={"lam": 0.3})
        items = trainer.maker.make_experience(prompts(8), Meter(), 0, monte_carlo=monte_carlo).experience
        for item, response in zip(items, RESPONSES, strict=True):
            text = LetterTokenizer().decode(response, True)
            want = [text.count("F") / len(text)] * len(response)
            assert (item.returns.tolist() == pytest.approx(want, abs=1e-5)) is (monte_carlo or len(response) == 1)


# --- Going on --------------------------------------------------------------------------------------------------------

FAMILY: dict[str, dict[str, Any]] = {
    "dynamic grpo, adaptive divergence": {
        "num_generations": 4,
        "estimator": "grpo",
        "dynamic_sampling": True,
        "max_refills": 3,
        "kl_in": "loss",
        "kl_estimator": "k3",
        "kl_target": 0.05,
        "kl_horizon": 64,
        "reward_model": RLVRRewardModel([lambda response: float("F" in response)], LetterTokenizer()),
    },
    "gspo": {
        "num_generations": 4,
        "estimator": "grpo",
        "mismatch_correction": "truncate",
        "off_policy_mask_threshold": 0.01,
        "positive_threshold": 0.05,
        "ratio": "sequence",
        "loss_reduction": "sequence_mean",
        "positive_lm_coef": 0.1,
    },
    "vapo": {
        "critic_lam": 1.0,
        "lam_alpha": 0.5,
        "positive_threshold": 0.05,
        "critic_warmup_steps": 9,
        "value_pretraining_episodes": 1,
        "positive_lm_coef": 0.1,
    },
    "remax, reward": {
        "num_generations": 2,
        "estimator": "remax",
        "kl_target": 0.05,
        "kl_horizon": 64,
    },
}


def run(folder: Path, stop: int | None, **arguments: Any) -> tuple[torch.Tensor, list[dict[str, float]]]:
    per_step = 32 // arguments.get("num_generations", 1)
    trainer = make_trainer(folder, callbacks=[StopAfter(stop)] if stop else [], **arguments)
    try:
        trainer.fit(3, 2, 2, loader(per_step))
        assert stop is None
    except Interrupted as interrupted:
        torch.rand(5)
        trainer = make_trainer(folder, **arguments)
        trainer.load_checkpoint(interrupted.checkpoint)
        trainer.fit(3, 2, 2, loader(per_step))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return weights(trainer), [{k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))} for row in rows]


@pytest.mark.parametrize("name", FAMILY)
def test_a30_each_of_the_family_goes_on_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    whole = None
    for stop in (None, 2, 5, 11, 14):  # collecting, learning (vapo: critic alone), between, and after warm-up
        folder = tmp_path / str(stop)
        folder.mkdir()
        result = run(folder, stop, **FAMILY[name])
        whole = whole or result
        assert torch.equal(result[0], whole[0]) and result[1] == whole[1], stop


@pytest.mark.parametrize("plugin", ["zero1", "zero2"])
def test_a30_warm_up_under_zero(plugin: str, tmp_path: Path) -> None:
    """An optimizer that has not taken a step yet is saved and loaded like any other."""
    results = []
    for stop in (None, 4):
        folder = tmp_path / str(stop)
        folder.mkdir()
        results.append(run(folder, stop, plugin=plugin, **FAMILY["vapo"])[0])
    assert torch.equal(*results)


def test_the_coefficient_of_the_divergence_adapts_and_stays_in_force(tmp_path: Path) -> None:
    """A target that can't be exceeded lowers it by 20 % x samples / horizon each episode; far below it rises."""
    far = tiny_model(seed=3)
    with torch.no_grad():
        far.lm_head.weight.mul_(20)  # or the divergence of two random models is lost in the noise of 32 responses
    for target, factor in ((1e9, 1 - 0.2 * 32 / 640), (1e-9, 1 + 0.2 * 32 / 640)):
        rows = Rows()
        trainer = make_trainer(
            kl_coef=0.5, initial_model=far, callbacks=[rows],
            settings={"kl_target": target, "kl_horizon": 640},
        )  # fmt: skip
        trainer.fit(3, 1, 1, loader())
        got = [r["objective/kl_coef"] for r in rows.rows]
        assert got == pytest.approx([0.5, 0.5 * factor, 0.5 * factor**2])
        assert trainer.kl_coef == trainer.maker.kl_coef
        paid = [r["objective/non_score_reward"] / r["objective/kl"] for r in rows.rows]
        assert paid == pytest.approx([-c for c in got], rel=1e-5)
