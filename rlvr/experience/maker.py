"""Prompts in, experience out: phases 1 to 3 of an iteration. `NaiveExperienceMaker` has all models in this process."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from rewards import Sample
from rewards.combine import Combined
from rlvr.boost.boosted import Boosted
from rlvr.boost.phases import board
from rlvr.boost.process import all_reduce_sum
from rlvr.conversation import Conversation
from rlvr.core.advantages import AdvantageInputs, AdvantageOutputs, get_estimator
from rlvr.core.kl import kl_estimate
from rlvr.core.losses import importance_weights
from rlvr.core.reductions import whiten
from rlvr.core.rewards import token_rewards
from rlvr.data.prompts import Prompt
from rlvr.experience.experience import Experience, split
from rlvr.experience.recording import record_groups, record_importance, record_samples, record_scores, record_totals
from rlvr.experience.scoring import ModelScores, score_rollouts
from rlvr.experience.settings import ExperienceSettings
from rlvr.experience.verdicts import Verdicts, judge
from rlvr.metrics import Meter
from rlvr.models.frozen import Reference
from rlvr.rewarding import make_sample
from rlvr.rollout.engine import Engine, Rollout, Sampling


class AwaitedScores(Protocol):
    """Scores on their way."""

    def result(self) -> list[Combined]: ...


class SampleScoring(AwaitedScores, Protocol):
    """Scores of samples that come one after the other; see `rlvr.rewarding.Scoring`."""

    def add(self, samples: Sequence[Sample]) -> None: ...

    def complete(self) -> None: ...


class Scorer(Protocol):
    """What gives each response its score, wherever it is."""

    def close(self) -> None:
        """End what scores, where that is a process."""
        ...


class SampleScorer(Scorer, Protocol):
    """What scores samples that are in this process: rules or a neural model."""

    def begin(self) -> "SampleScoring":
        """Start to score samples that come one after the other."""
        ...


@dataclass
class Collected:
    """What one call made: experience for the buffer, samples with their verdicts for people to read."""

    experience: list[Experience]
    samples: list[Sample]
    results: list[Combined]
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass
class Responses:
    """Sampled responses whose scores may still be on their way; the responses to one prompt stand together."""

    rollouts: list[Rollout]
    samples: list[Sample]
    scoring: AwaitedScores


class BaseExperienceMaker(ABC):
    """Rewards, advantages and experience from what models say, wherever the models run.

    Args:
        reward_model: scores responses.
        sampling: how responses are sampled.
        settings: how rewards and advantages are formed. Replaced by the trainer when the KL coefficient adapts.
    """

    def __init__(self, reward_model: Scorer, sampling: Sampling, settings: ExperienceSettings) -> None:
        self.reward_model, self.sampling, self.settings = reward_model, sampling, settings
        self.estimator = get_estimator(settings.estimator)

    @abstractmethod
    def respond(
        self, prompts: Sequence[Prompt], sampling: Sampling, seconds: dict[str, float], *seed: int | str
    ) -> Responses:
        """Sample responses, and have them scored while further ones are generated."""

    def sampling_weights(self) -> AbstractContextManager[Any]:
        """Within the block: what `respond` samples from is whole, however often it is called. Collective to enter."""
        return nullcontext()

    @abstractmethod
    def run_models(self, rollouts: Sequence[Rollout], seconds: dict[str, float]) -> ModelScores:
        """Logprobs, reference logprobs and values of the responses."""

    @torch.no_grad()
    def make_experience(
        self, prompts: Sequence[Prompt], meter: Meter, *seed: int | str, monte_carlo: bool = False
    ) -> Collected:
        """Sample one response to each prompt, score it, and compute its advantages.

        Args:
            prompts: this process's share; each stands `num_generations` times in a row.
            meter: receives the metrics of the collection.
            seed: the place in the run (seed, episode, step) that the sampling belongs to; each rank adds its own.
            monte_carlo: the critic's targets are plain returns, whatever the settings say.
        """
        seconds: dict[str, float] = {}
        with self.sampling_weights():
            greedy = self.greedy_responses(prompts, seconds, *seed)
            responses = self.respond(prompts, self.sampling, seconds, *seed)
        scores = self.run_models(responses.rollouts, seconds)
        with timed(seconds, "reward"):
            results = responses.scoring.result()
            verdicts = self.judge(responses.rollouts, results, meter, greedy)
        record_totals(meter, verdicts.totals, verdicts.trained)
        if self.settings.num_generations > 1:
            signal = verdicts.groups_with_signal(self.settings.num_generations)
            record_groups(meter, int(signal.sum()), len(signal))
        experience = self.assemble(responses.rollouts, scores, verdicts, meter, seconds, monte_carlo)
        return Collected(experience, responses.samples, results, seconds)

    def greedy_responses(
        self, prompts: Sequence[Prompt], seconds: dict[str, float], *seed: int | str
    ) -> Responses | None:
        """One greedy response to each different prompt, for estimators that compare with it."""
        if not self.estimator.greedy:
            return None
        each = prompts[:: self.settings.num_generations]
        return self.respond(each, replace(self.sampling, temperature=0.0), seconds, *seed, "greedy")

    def judge(
        self, rollouts: Sequence[Rollout], results: Sequence[Combined], meter: Meter, greedy: Responses | None = None
    ) -> Verdicts:
        """What each response is paid, and whether it is trained on."""
        record_samples(meter, rollouts, results, self.sampling.stop_ids)
        verdicts = judge(rollouts, results, self.settings)
        if greedy is None:
            return verdicts
        of_greedy = judge(greedy.rollouts, greedy.scoring.result(), self.settings)
        meter.add("objective/greedy_scores", of_greedy.totals[of_greedy.scored].sum(), of_greedy.scored.sum())
        return verdicts.compared_with(of_greedy, self.settings.num_generations)

    def assemble(
        self,
        rollouts: Sequence[Rollout],
        scores: ModelScores,
        verdicts: Verdicts,
        meter: Meter,
        seconds: dict[str, float],
        monte_carlo: bool = False,
    ) -> list[Experience]:
        """Rewards of tokens, advantages, and the experience of each response without padding."""
        s, mask = self.settings, scores.mask
        with timed(seconds, "score"):
            totals, trained = verdicts.totals.to(mask.device), verdicts.trained.to(mask.device)
            ref_logprobs = scores.ref_logprobs if scores.ref_logprobs is not None else scores.logprobs
            kl = kl_estimate(scores.logprobs, ref_logprobs, s.kl_estimator)
            rewards, non_score = token_rewards(totals, kl, mask, s.kl_coef if s.kl_in == "reward" else 0.0)
            if s.whiten_rewards:  # over all ranks; every rank comes here equally often
                rewards = whiten(rewards, mask, shift_mean=False, all_reduce=all_reduce_sum)
            out = self._advantages(rollouts, scores, rewards, verdicts, monte_carlo)
            record_scores(meter, scores, kl, non_score, totals, trained, out.returns)
            meter.add_tokens("advantages", out.advantages, mask)
            columns = {
                "logprobs": scores.logprobs,
                "ref_logprobs": ref_logprobs,
                "advantages": out.advantages,
                "mask": mask & trained[:, None],
                "values": scores.values,
                "returns": out.returns,
                "importance": self._importance(rollouts, scores, meter),
                "positive": (verdicts.positive.to(mask.device)[:, None] & mask) if s.keep_positive else None,
            }
            return _unpad(rollouts, {name: tensor for name, tensor in columns.items() if tensor is not None})

    def _advantages(
        self,
        rollouts: Sequence[Rollout],
        scores: ModelScores,
        rewards: Tensor,
        verdicts: Verdicts,
        monte_carlo: bool,
    ) -> AdvantageOutputs:
        s, device = self.settings, rewards.device
        finished = torch.tensor([r.finished for r in rollouts], device=device)
        bootstrap = None
        if s.truncated == "bootstrap" and scores.last_values is not None:
            bootstrap = scores.last_values * ~finished
        return self.estimator(
            AdvantageInputs(
                rewards,
                scores.values,
                scores.mask,
                gamma=s.gamma,
                lam=s.lam,
                critic_lam=1.0 if monte_carlo else s.critic_lam,
                lam_alpha=s.lam_alpha,
                bootstrap=bootstrap,
                groups=torch.arange(len(rollouts), device=device) // s.num_generations,
                scored=verdicts.scored.to(device),
                greedy_scores=None if verdicts.greedy is None else verdicts.greedy.to(device),
            )
        )

    def _importance(self, rollouts: Sequence[Rollout], scores: ModelScores, meter: Meter) -> Tensor | None:
        """[B, R] truncated weights, where they are asked for and the engine says with what probability it sampled."""
        given = [r.logprobs for r in rollouts]
        if self.settings.tis_cap is None or any(row is None for row in given):
            return None
        of_sampler = pad_sequence([row.float() for row in given if row is not None], batch_first=True)
        of_sampler = of_sampler.to(scores.logprobs.device)
        weights = importance_weights(scores.logprobs[:, : of_sampler.size(1)], of_sampler, self.settings.tis_cap)
        record_importance(meter, weights, self.settings.tis_cap, scores.mask[:, : of_sampler.size(1)])
        return weights


class NaiveExperienceMaker(BaseExperienceMaker):
    """Makes experience with one engine and models that are all in this process.

    Args:
        actor, critic: the boosted roles; no critic for estimators that need none.
        reference: the frozen initial model; None when `kl_coef` is 0.
        reward_model: scores samples.
        engine: samples responses from the actor.
        sampling: how.
        tokenizer: turns responses into text for the reward functions.
        conversation: the template's tags and end marker.
        settings: how rewards and advantages are formed. Replaced by the trainer when the KL coefficient adapts.
    """

    reward_model: SampleScorer

    def __init__(
        self,
        actor: Boosted,
        critic: Boosted | None,
        reference: Reference | None,
        reward_model: SampleScorer,
        engine: Engine,
        sampling: Sampling,
        tokenizer: PreTrainedTokenizerBase,
        conversation: Conversation | None,
        settings: ExperienceSettings,
    ) -> None:
        super().__init__(reward_model, sampling, settings)
        self.actor, self.critic, self.reference, self.engine = actor, critic, reference, engine
        self.tokenizer, self.conversation = tokenizer, conversation

    def sampling_weights(self) -> AbstractContextManager[Any]:
        return self.actor.whole()

    def respond(
        self, prompts: Sequence[Prompt], sampling: Sampling, seconds: dict[str, float], *seed: int | str
    ) -> Responses:
        rollouts: list[Rollout] = []
        samples: list[Sample] = []
        scoring = self.reward_model.begin()
        with timed(seconds, "rollout"):
            place = (*seed, dist.get_rank() if dist.is_initialized() else 0)
            with self.actor.whole() as actor:
                for batch in self.engine.stream(actor.model, prompts, sampling, place):
                    some = prompts[len(rollouts) : len(rollouts) + len(batch)]
                    new = samples_of(self.tokenizer, self.conversation, some, batch)
                    scoring.add(new)  # worker processes score these while the next are generated
                    rollouts.extend(batch)
                    samples.extend(new)
            scoring.complete()
        return Responses(rollouts, samples, scoring)

    def run_models(self, rollouts: Sequence[Rollout], seconds: dict[str, float]) -> ModelScores:
        s = self.settings
        with timed(seconds, "score"):
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
                sampled_logprobs=s.old_logprobs == "sampled",
            )
            if self.reference is not None and s.offload_reference:
                self.reference.to("cpu")
        return scores


def samples_of(
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation | None,
    prompts: Sequence[Prompt],
    rollouts: Sequence[Rollout],
) -> list[Sample]:
    """What the reward functions see of one response to each prompt."""
    return [
        make_sample(
            tokenizer,
            prompt.ids,
            rollout.response_ids.tolist(),
            gold=prompt.problem.answer,
            tags=conversation.tags if conversation else None,
            question=prompt.problem.question,
            finished=rollout.finished,
            columns=prompt.problem.columns,
        )
        for prompt, rollout in zip(prompts, rollouts, strict=True)
    ]


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds that the block takes to `seconds[name]`; the other processes are told that this one is in it."""
    start = time.perf_counter()
    board.enter(name)
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


def _unpad(rollouts: Sequence[Rollout], columns: dict[str, Tensor]) -> list[Experience]:
    lengths = [len(r.response_ids) for r in rollouts]
    rows = {name: split(tensor, lengths) for name, tensor in columns.items()}
    return [
        Experience(r.prompt_ids, r.response_ids, **{name: rows[name][i] for name in columns})
        for i, r in enumerate(rollouts)
    ]
