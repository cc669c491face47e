"""An engine that samples from another model than the one that learns: measured by default, and corrected as theory says."""

import copy
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import reference
import torch
from tiny_models import VOCAB
from trainer_harness import FixedEngine, LetterTokenizer, loader, make_trainer, prompts

from rlvr.config import by_section, merge
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.experience.experience import Experience
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.rollout.engine import Engine, Rollout, Sampling
from rlvr.rollout.hf import HFEngine
from rlvr.tracking.meter import Meter
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.ppo import PPOTrainer
from rlvr.trainer.ppo_update import Learner, Step, actor_loss

pytestmark = pytest.mark.usefixtures("process")

DISTANCES = (
    "sampler/delta_avg",
    "sampler/delta_max",
    "sampler/kl",
    "sampler/tokens_outside",
    "sampler/responses_outside",
)


def perturbed(model: Any, size: float) -> Any:
    """A copy whose weights are off by noise."""
    other, g = copy.deepcopy(model), torch.Generator().manual_seed(7)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(size * torch.randn(p.shape, generator=g))
    return other.eval()


class PerturbedEngine(Engine):
    """Samples from a perturbed copy of the model, and says with which probabilities."""

    def __init__(self, size: float) -> None:
        self.size, self.inner = size, HFEngine(LetterTokenizer())

    def stream(self, model: Any, prompts: Sequence[Prompt], sampling: Sampling, seed: Any) -> Iterator[list[Rollout]]:
        yield from self.inner.stream(perturbed(model, self.size), prompts, sampling, seed)


class EveryResponse(Engine):
    """Each response of at most two tokens once, with its probability under a perturbed copy of the model."""

    responses = [(1,), *((a, b) for a in range(VOCAB) if a != 1 for b in range(VOCAB))]

    def __init__(self, size: float) -> None:
        self.size = size

    def stream(self, model: Any, prompts: Sequence[Prompt], sampling: Sampling, seed: Any) -> Iterator[list[Rollout]]:
        ids = [torch.tensor(response) for response in self.responses]
        batch = collate([torch.tensor(prompts[0].ids)] * len(ids), ids)
        logprobs = Actor(perturbed(model, self.size))(batch, sampling.temperature).logprobs
        yield [
            Rollout(torch.tensor(prompts[0].ids), r, "stop" if r[-1] == 1 else "length", row[: len(r)].clone())
            for r, row in zip(ids, logprobs, strict=True)
        ]


class Rows(Callback):
    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def on_episode_end(self, trainer: Any, episode: int, metrics: Any) -> None:
        self.rows.append(dict(metrics))


def test_the_distance_is_measured_by_default_and_equals_the_oracle() -> None:
    trainer = make_trainer(engine=PerturbedEngine(0.1), temperature=0.8)
    meter = Meter()
    rollouts = trainer.maker.respond(prompts(12), trainer.maker.sampling, {}, 0).rollouts
    items = trainer.maker.make_experience(prompts(12), meter, 0).experience
    assert all(item.sampler_logprobs is None for item in items)  # nothing reads them
    pairs = [(item.logprobs.tolist(), r.logprobs.tolist()) for item, r in zip(items, rollouts, strict=True)]
    tokens = [pair for new, sampler in pairs for pair in zip(new, sampler, strict=True)]
    own = [math.exp(new - sampler) for new, sampler in tokens]
    whole = [reference.mismatch_ratio(new, sampler, "sequence")[0] for new, sampler in pairs]
    want = {
        "sampler/delta_avg": sum(abs(new - sampler) for new, sampler in tokens) / len(tokens),
        "sampler/delta_max": max(abs(new - sampler) for new, sampler in tokens),
        "sampler/kl": sum(reference.kl_estimate(sampler, new, "k3") for new, sampler in tokens) / len(tokens),
        "sampler/tokens_outside": sum(not 0.5 <= r <= 2 for r in own) / len(own),
        "sampler/responses_outside": sum(not 1 / 3 <= r <= 3 for r in whole) / len(whole),
    }
    means = meter.means()
    assert {name: means[name] for name in want} == pytest.approx(want, rel=1e-4)
    assert 0 < want["sampler/tokens_outside"] < 1 and 0 < want["sampler/responses_outside"] < 1
    assert not {"sampler/weight_avg", "sampler/corrected"} & means.keys()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_our_own_engine_samples_with_the_trainers_probabilities(family: str) -> None:
    rows = Rows()
    make_trainer(family=family, callbacks=[rows], temperature=0.7).fit(2, 1, 1, loader())
    for row in rows.rows:
        assert {name: row[name] for name in DISTANCES} == pytest.approx(dict.fromkeys(DISTANCES, 0.0), abs=1e-5)
        assert row["sampler/tokens_outside"] == row["sampler/responses_outside"] == 0


def policy_gradient(trainer: PPOTrainer, items: Sequence[Experience], **settings: Any) -> torch.Tensor:
    """Of the policy loss over the items, with the trainer's settings and these."""
    learner, actor = trainer.learner, trainer.actor.unwrapped
    assert isinstance(learner, Learner)
    batch = learner.make_micro_batch(items)
    step = Step(merge(trainer.config, by_section(settings)), 0.0, Meter(), learner.total_size([i.mask for i in items]))
    loss = actor_loss(batch, step, actor(batch.sequences, trainer.config.rollout.temperature))
    return torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(actor.parameters()))])


def test_the_corrected_gradient_comes_nearer_to_the_exact_one_as_theory_says() -> None:
    """Mean gradients over all responses, exactly. Weighed by the response's ratio: right without a bound, and the bias of a bound is
    the less the higher it is; by the tokens' own: nearer than without weights."""
    trainer = make_trainer(
        engine=EveryResponse(0.1), kl_coef=0.0, initial_model=None, max_new_tokens=2,
        settings={"estimator": "reinforce_pp", "loss_reduction": "constant", "mismatch_correction": "truncate"},
    )  # fmt: skip
    items = trainer.maker.make_experience(prompts(1) * len(EveryResponse.responses), Meter(), 0).experience

    def counted_by(name: str) -> list[Experience]:
        """A response counts by its probability: the `logprobs` of the policy, or the `sampler_logprobs` of the engine."""
        return [i.with_advantages(i.advantages * getattr(i, name).sum().exp()) for i in items]

    exact = policy_gradient(trainer, counted_by("logprobs"), mismatch_correction="none")
    sampled = counted_by("sampler_logprobs")

    def bias(how: str, level: str, high: float) -> float:
        settings = {"mismatch_correction": how, "mismatch_level": level, "mismatch_low": 0.0, "mismatch_high": high}
        return float((policy_gradient(trainer, sampled, **settings) - exact).norm() / exact.norm())

    none = bias("none", "token", 1.0)
    bounds = [bias("truncate", "sequence", high) for high in (0.5, 1.0, 2.0, 1e6)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 1e-5 and bounds[-2] < 0.5 * none
    assert bias("mask", "sequence", 1e6) < 1e-5
    assert 0.01 * none < bias("truncate", "token", 1e6) < 0.8 * none


def test_what_is_masked_teaches_nothing_and_is_counted() -> None:
    """No response has the ratio 1 to within 1e-9, so all are left out; with wide bounds none."""
    for low, high, share in ((1 - 1e-9, 1 + 1e-9, 1.0), (0.0, 1e9, 0.0)):
        trainer = make_trainer(
            engine=PerturbedEngine(0.1), kl_coef=0.0, initial_model=None,
            settings={
                "mismatch_correction": "mask", "mismatch_level": "sequence", "mismatch_low": low, "mismatch_high": high,
            },
        )  # fmt: skip
        meter = Meter()
        items = trainer.maker.make_experience(prompts(8), meter, 0).experience
        assert meter.means()["sampler/corrected"] == share
        assert bool(policy_gradient(trainer, items).any()) is (share == 0)


def test_left_responses_are_masked_by_the_policy_as_it_is_now() -> None:
    """The threshold is measured from the engine's probabilities to those of the present policy; without the engine's, from
    the ones that were recomputed."""
    for engine, far in ((PerturbedEngine(0.1), True), (FixedEngine([(7, 8, 1)]), False)):
        trainer = make_trainer(
            engine=engine, kl_coef=0.0, initial_model=None, settings={"off_policy_mask_threshold": 0.05}
        )
        items = trainer.maker.make_experience(prompts(8), Meter(), 0).experience
        assert all((i.sampler_logprobs is not None) is far for i in items)
        down = [i.with_advantages(-torch.ones_like(i.advantages)) for i in items]
        meter = Meter()
        trainer.learner.step(down, meter, kl_coef=0.0, actor_learns=True, ptx=())
        first = meter.means()["policy/drifted"]
        assert (first > 0) is far
        for _ in range(3):  # pushed down, all of them are less likely than when they were sampled
            meter = Meter()
            trainer.learner.step(down, meter, kl_coef=0.0, actor_learns=True, ptx=())
        assert meter.means()["policy/drifted"] > min(first, 0.99)


def test_a_correction_without_the_engines_probabilities_is_refused() -> None:
    trainer = make_trainer(engine=FixedEngine([(7, 8, 1)]), settings={"mismatch_correction": "truncate"})
    with pytest.raises(UserError, match="gave no logprobs.*--mismatch_correction none"):
        trainer.maker.make_experience(prompts(4), Meter(), 0)
