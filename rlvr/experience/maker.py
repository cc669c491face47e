"""`NaiveExperienceMaker`: prompts in, experience out. One call is phases 1 to 3 of an iteration."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rewards import Sample
from rewards.combine import Combined
from rlvr.boost.boosted import Boosted
from rlvr.conversation import Conversation
from rlvr.core.advantages import AdvantageInputs, get_estimator
from rlvr.core.kl import kl_estimate
from rlvr.core.rewards import token_rewards
from rlvr.data.prompts import Prompt
from rlvr.experience.experience import Experience, split
from rlvr.experience.scoring import ModelScores, score_rollouts
from rlvr.experience.settings import ExperienceSettings
from rlvr.metrics import Meter
from rlvr.models.frozen import Frozen
from rlvr.rewarding import make_sample, metrics_of
from rlvr.rollout.engine import Engine, Rollout, Sampling


class SampleScoring(Protocol):
    """Scores on their way; see `rlvr.rewarding.Scoring`."""

    def add(self, samples: Sequence[Sample]) -> None: ...

    def complete(self) -> None: ...

    def result(self) -> list[Combined]: ...


class SampleScorer(Protocol):
    """What gives each response its score: rules or a neural model."""

    def begin(self) -> "SampleScoring":
        """Start to score samples that come one after the other."""
        ...

    def close(self) -> None:
        """End what scores, where that is a process."""
        ...


@dataclass
class Collected:
    """What one call made: experience for the buffer, samples with their verdicts for people to read."""

    experience: list[Experience]
    samples: list[Sample]
    results: list[Combined]
    seconds: dict[str, float] = field(default_factory=dict)


class NaiveExperienceMaker:
    """Makes experience with one engine and models that are all in this process.

    Args:
        actor, critic: the boosted roles.
        reference: the frozen initial model; None when `kl_coef` is 0.
        reward_model: scores samples.
        engine: samples responses from the actor.
        sampling: how.
        tokenizer: turns responses into text for the reward functions.
        conversation: the template's tags and end marker.
        settings: how rewards and advantages are formed.
    """

    def __init__(
        self,
        actor: Boosted,
        critic: Boosted,
        reference: Frozen | None,
        reward_model: SampleScorer,
        engine: Engine,
        sampling: Sampling,
        tokenizer: PreTrainedTokenizerBase,
        conversation: Conversation | None,
        settings: ExperienceSettings,
    ) -> None:
        self.actor, self.critic, self.reference = actor, critic, reference
        self.reward_model, self.engine, self.sampling = reward_model, engine, sampling
        self.tokenizer, self.conversation, self.settings = tokenizer, conversation, settings

    @torch.no_grad()
    def make_experience(self, prompts: Sequence[Prompt], meter: Meter, *seed: int | str) -> Collected:
        """Sample one response to each prompt, score it, and compute its advantages.

        Args:
            prompts: this process's share.
            meter: receives the metrics of the collection.
            seed: the place in the run (seed, step, rank) that the sampling belongs to.
        """
        seconds: dict[str, float] = {}
        rollouts: list[Rollout] = []
        samples: list[Sample] = []
        scoring = self.reward_model.begin()
        with _timed(seconds, "rollout"):
            for batch in self.engine.stream(self.actor.unwrapped.model, prompts, self.sampling, seed):
                new = [self.sample_of(p, r) for p, r in zip(prompts[len(rollouts) :], batch, strict=False)]
                scoring.add(new)  # worker processes score these while the next are generated
                rollouts, samples = rollouts + batch, samples + new
            scoring.complete()
        with _timed(seconds, "score"):
            scores = self._run_models(rollouts)
        with _timed(seconds, "reward"):
            results = scoring.result()
        with _timed(seconds, "score"):
            experience = self._assemble(rollouts, scores, results, meter)
        _record_samples(meter, rollouts, results, self.sampling.stop_ids)
        return Collected(experience, samples, results, seconds)

    def sample_of(self, prompt: Prompt, rollout: Rollout) -> Sample:
        """What the reward functions see of one response."""
        sample = make_sample(
            self.tokenizer,
            prompt.ids,
            rollout.response_ids.tolist(),
            gold=prompt.problem.answer,
            tags=self.conversation.tags if self.conversation else None,
            question=prompt.problem.question,
            finished=rollout.finished,
            columns=prompt.problem.columns,
        )
        return sample

    def _assemble(
        self, rollouts: Sequence[Rollout], scores: ModelScores, results: Sequence[Combined], meter: Meter
    ) -> list[Experience]:
        s = self.settings
        mask = scores.mask
        finished = torch.tensor([r.finished for r in rollouts], device=mask.device)
        totals = torch.tensor([r.total or 0.0 for r in results], device=mask.device, dtype=torch.float32)
        totals = totals - s.missing_eos_penalty * (~finished)
        ref_logprobs = scores.ref_logprobs if scores.ref_logprobs is not None else scores.logprobs
        kl = kl_estimate(scores.logprobs, ref_logprobs, s.kl_estimator)
        rewards, non_score = token_rewards(totals, kl, mask, s.kl_coef if s.kl_in == "reward" else 0.0)
        bootstrap = scores.last_values * ~finished if s.truncated == "bootstrap" else None
        out = get_estimator(s.estimator)(
            AdvantageInputs(rewards, scores.values, mask, gamma=s.gamma, lam=s.lam, bootstrap=bootstrap)
        )
        trained = torch.tensor([r.total is not None for r in results], device=mask.device)
        if s.truncated == "mask":
            trained = trained & finished
        _record_scores(meter, scores, kl, non_score, totals, trained, out.returns)
        columns = {
            "logprobs": scores.logprobs,
            "ref_logprobs": ref_logprobs,
            "values": scores.values,
            "advantages": out.advantages,
            "returns": out.returns,
            "mask": mask & trained[:, None],
        }
        return _unpad(rollouts, columns)

    def _run_models(self, rollouts: Sequence[Rollout]) -> ModelScores:
        s = self.settings
        if self.reference is not None and s.offload_reference:
            self.reference.to(self.actor.device)
        scores = score_rollouts(
            rollouts,
            self.actor,
            self.critic,
            self.reference,
            temperature=s.temperature,
            batch_size=s.score_batch_size,
            pad_id=s.pad_id,
        )
        if self.reference is not None and s.offload_reference:
            self.reference.to("cpu")
        return scores


@contextmanager
def _timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


def _unpad(rollouts: Sequence[Rollout], columns: dict[str, Tensor]) -> list[Experience]:
    lengths = [len(r.response_ids) for r in rollouts]
    rows = {name: split(tensor, lengths) for name, tensor in columns.items()}
    return [
        Experience(r.prompt_ids, r.response_ids, **{name: rows[name][i] for name in columns})
        for i, r in enumerate(rollouts)
    ]


def _record_scores(
    meter: Meter, scores: ModelScores, kl: Tensor, non_score: Tensor, totals: Tensor, trained: Tensor, returns: Tensor
) -> None:
    """Metrics named as TRL's PPO named them: `objective/*` are sums over a response, averaged over responses."""
    mask, count = scores.mask, scores.mask.size(0)
    zero = torch.zeros_like(kl)
    meter.add("objective/kl", torch.where(mask, kl, zero).sum(), count)
    meter.add("objective/entropy", -torch.where(mask, scores.logprobs, zero).sum(), count)
    meter.add("objective/non_score_reward", non_score.sum(), count)
    meter.add("objective/scores", totals[trained].sum(), trained.sum())
    meter.add("_scores_squared", totals[trained].double().square().sum(), trained.sum())
    meter.add("objective/rlhf_reward", (non_score.sum(1) + totals)[trained].sum(), trained.sum())
    meter.add_tokens("policy/entropy_avg", scores.entropy, mask)
    meter.add_tokens("value", scores.values, mask)
    # Sums from which the share of the returns' variance that the critic explains is formed, over all ranks.
    meter.add_tokens("_returns", returns, mask)
    meter.add_tokens("_returns_squared", returns**2, mask)
    meter.add_tokens("_residuals", returns - scores.values, mask)
    meter.add_tokens("_residuals_squared", (returns - scores.values) ** 2, mask)


def _record_samples(
    meter: Meter, rollouts: Sequence[Rollout], results: Sequence[Combined], stop_ids: Sequence[int]
) -> None:
    for rollout, result in zip(rollouts, results, strict=True):
        meter.add("response/length_tokens", len(rollout.response_ids))
        meter.add("response/truncated", float(not rollout.finished))
        meter.add_count("val/num_eos_tokens", int(torch.isin(rollout.response_ids, torch.tensor(list(stop_ids))).sum()))
        for name, value in metrics_of(result).items():
            meter.add(name, value)
