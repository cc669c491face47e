"""Prompts in, experience out: the collecting half of a training step.

`BaseExperienceMaker.make_experience` samples responses and has them scored, runs the models over them
(`rlvr.experience.scoring`), decides what each response is paid (`rlvr.experience.verdicts`), and forms token rewards and
advantages. The result is `Experience`, which the loop (`rlvr.trainer.online`) puts into its buffer and the update
(`rlvr.trainer.ppo_update`) learns from.

`NaiveExperienceMaker` has engine and models in this process; `rlvr.ray.experience.ExperienceMaker` asks Ray actors. The
mathematics is in the base class, so that both compute the same.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from rewards import Sample
from rewards.combine import Combined
from rlvr.boost.boosted import Boosted
from rlvr.boost.frozen import Frozen, Reference
from rlvr.boost.health import enter_phase
from rlvr.boost.process import all_reduce_sum
from rlvr.checkpoint.checkpointer import FrozenPart, SavedPart
from rlvr.config import Config
from rlvr.config.conditions import correction_of, kl_kind_of
from rlvr.core.advantages import AdvantageInputs, get_estimator, plain_returns, score_norms
from rlvr.core.entropy_control import SHARES, choose_tokens
from rlvr.core.kl import kl_estimate, token_rewards
from rlvr.core.masked import whiten
from rlvr.core.seeding import derive_seed
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.experience.experience import TOKENS, Experience, split
from rlvr.experience.metrics import (
    record_groups,
    record_mismatch,
    record_samples,
    record_scores,
    record_totals,
    record_values,
)
from rlvr.experience.scoring import ModelScores, score_rollouts
from rlvr.experience.verdicts import Verdicts, judge
from rlvr.prompting.conversation import Conversation
from rlvr.rollout.engine import Engine, Rollout, Sampling
from rlvr.scorers.rules import sample_of
from rlvr.tracking.meter import Meter

GREEDY = "greedy"
"""Ends the seed of greedy responses."""


class AwaitedScores(Protocol):
    """Scores of a batch that may not be finished; `result` waits for them."""

    def result(self) -> list[Combined]: ...


class SampleScoring(AwaitedScores, Protocol):
    """Scores of samples that are handed over in parts, as they are generated; see `rlvr.scorers.rules.Scoring`."""

    def add(self, samples: Sequence[Sample]) -> None: ...

    def complete(self) -> None: ...


class Scorer(Protocol):
    """Gives each response its score, in this process or elsewhere."""

    def close(self) -> None:
        """End worker processes, if it has any."""
        ...


class SampleScorer(Scorer, Protocol):
    """A scorer that takes samples from this process: rules or a neural model."""

    def begin(self) -> "SampleScoring":
        """Open a batch, to which samples are added as they are generated."""
        ...


@dataclass
class Collected:
    """The product of one collect step: experience for the buffer; samples with their scores for people to read.

    Attributes:
        seconds: the time of each phase, by its name.
        solved: of each problem, by its id, the responses that were sampled and scored, and how many of them were right.
    """

    experience: list[Experience]
    samples: list[Sample]
    results: list[Combined]
    seconds: dict[str, float] = field(default_factory=dict)
    solved: dict[str, tuple[int, int]] = field(default_factory=dict)


@dataclass
class Responses:
    """Sampled responses whose scores may not be finished; the responses to one prompt stand together."""

    rollouts: list[Rollout]
    samples: list[Sample]
    scoring: AwaitedScores


class BaseExperienceMaker(ABC):
    """Forms rewards, advantages and experience from the outputs of models, wherever these run.

    Args:
        reward_model: scores responses.
        sampling: how responses are sampled.
        config: the run's settings, which say how rewards and advantages are formed.

    Attributes:
        kl_coef: present weight of the divergence; the trainer adapts it where there is a `kl_target`.
    """

    def __init__(self, reward_model: Scorer, sampling: Sampling, config: Config) -> None:
        self.reward_model, self.sampling, self.config = reward_model, sampling, config
        self.kl_coef = config.algo.kl_coef
        self.estimator = get_estimator(config.algo.estimator)
        self.kl_kind, self.correction = kl_kind_of(config), correction_of(config)

    @abstractmethod
    def respond(
        self, prompts: Sequence[Prompt], sampling: Sampling, seconds: dict[str, float], *seed: int | str
    ) -> Responses:
        """Sample responses, and have them scored while further ones are generated."""

    def sampling_weights(self) -> AbstractContextManager[Any]:
        """Within the block the weights that `respond` samples from are whole, however often it is called. Collective to enter."""
        return nullcontext()

    @abstractmethod
    def run_models(self, rollouts: Sequence[Rollout], seconds: dict[str, float]) -> ModelScores:
        """Logprobs, reference logprobs and values of the responses."""

    @abstractmethod
    def move_reference(self, share: float) -> None:
        """Move the reference's weights towards the actor's: all the way at `share` 1. Collective."""

    @property
    @abstractmethod
    def saved_reference(self) -> SavedPart | None:
        """The reference, for checkpoints; None where there is none of its own."""

    def close(self) -> None:
        """End worker processes."""
        self.reward_model.close()

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
        with self.sampling_weights():  # sharded weights are gathered once, for both samplings
            greedy = self.greedy_responses(prompts, seconds, *seed)
            responses = self.respond(prompts, self.sampling, seconds, *seed)
        # The models run while reward workers still judge; scores are waited for only after that, and `reward` is the rest.
        scores = self.run_models(responses.rollouts, seconds)
        with timed(seconds, "reward"):
            results = responses.scoring.result()
            verdicts = self.judge(responses.rollouts, results, meter, greedy)
        record_totals(meter, verdicts.totals, verdicts.scored)
        if (group := self.config.rollout.num_generations) > 1:
            signal = verdicts.groups_with_signal(group)
            record_groups(meter, int(signal.sum()), len(signal))
        experience = self.assemble(responses.rollouts, scores, verdicts, meter, seconds, *seed, monte_carlo=monte_carlo)
        return Collected(experience, responses.samples, results, seconds, count_solved(prompts, verdicts))

    def greedy_responses(
        self, prompts: Sequence[Prompt], seconds: dict[str, float], *seed: int | str
    ) -> Responses | None:
        """One greedy response to each different prompt, for estimators that compare with it."""
        if not self.estimator.greedy:
            return None
        each, sampling = self.greedy_request(prompts)
        return self.respond(each, sampling, seconds, *seed, GREEDY)

    def greedy_request(self, prompts: Sequence[Prompt]) -> tuple[Sequence[Prompt], Sampling]:
        """The prompts that get a greedy response, and its sampling."""
        # A prompt stands `num_generations` times in a row.
        return prompts[:: self.config.rollout.num_generations], replace(self.sampling, temperature=0.0)

    def judge(
        self, rollouts: Sequence[Rollout], results: Sequence[Combined], meter: Meter, greedy: Responses | None = None
    ) -> Verdicts:
        """Decide what each response is paid and whether it is trained on, and record the metrics of samples."""
        record_samples(meter, rollouts, results, self.sampling.stop_ids)
        verdicts = judge(rollouts, results, self.config)
        if greedy is None:
            return verdicts
        of_greedy = judge(greedy.rollouts, greedy.scoring.result(), self.config)
        meter.add("objective/greedy_scores", of_greedy.totals[of_greedy.scored].sum(), of_greedy.scored.sum())
        return verdicts.compared_with(of_greedy, self.config.rollout.num_generations)

    def assemble(
        self,
        rollouts: Sequence[Rollout],
        scores: ModelScores,
        verdicts: Verdicts,
        meter: Meter,
        seconds: dict[str, float],
        *seed: int | str,
        monte_carlo: bool = False,
    ) -> list[Experience]:
        """Form token rewards and advantages, and cut them into the experience of each response, without padding.

        B responses, R tokens in the longest of them. `seed` and `monte_carlo` are those of `make_experience`.
        """
        a, mask = self.config.algo, scores.mask
        with timed(seconds, "score"):
            # [B] each, from the CPU, where rewards are.
            totals, trained = verdicts.totals.to(mask.device), verdicts.trained.to(mask.device)
            # Without a reference model the divergence is 0 on every token.
            ref_logprobs = scores.ref_logprobs if scores.ref_logprobs is not None else scores.logprobs
            kl = kl_estimate(scores.logprobs, ref_logprobs, self.kl_kind)
            # [B] true where the critic's value stands for all that would have followed. The score is part of that: paid besides,
            # it would be counted twice, and values fitted to such returns would grow without end.
            continued = self._continued(rollouts, scores)
            # [B, R] each. A divergence that is a term of the loss (`kl_in`) is not taken off the rewards as well.
            rewards, non_score = token_rewards(
                totals.masked_fill(continued, 0.0), kl, mask, self.kl_coef if a.kl_in == "reward" else 0.0
            )
            # [B, R] & [B, 1]: tokens that are trained on. A response that is not still counts in its group's baseline.
            learned = mask & trained[:, None]
            # The mean stays: moved, it would pay or fine every token merely for being there. Collective: every rank comes here
            # equally often.
            if a.whiten_rewards:
                rewards = whiten(rewards, learned, shift_mean=False, all_reduce=all_reduce_sum)
            inputs = self._inputs(rollouts, scores, rewards, continued, verdicts, monte_carlo)
            out = self.estimator(inputs)
            record_scores(meter, scores, kl, non_score, verdicts)
            if scores.values is not None:
                record_values(meter, scores.values, plain_returns(inputs), learned)
            meter.add_tokens("advantages", out.advantages, learned)
            columns = {
                "logprobs": scores.logprobs,
                "ref_logprobs": ref_logprobs,
                "advantages": out.advantages,
                "mask": learned,
                "values": scores.values,
                "returns": out.returns,
                "sampler_logprobs": self._sampler_logprobs(rollouts, scores, meter),
                "positive": (verdicts.positive.to(mask.device)[:, None] & mask) if a.positive_lm_coef else None,
                "controlled": self._controlled(scores, out.advantages, learned, meter, *seed),
            }
            return _unpad(rollouts, {name: tensor for name, tensor in columns.items() if tensor is not None})

    def _continued(self, rollouts: Sequence[Rollout], scores: ModelScores) -> Tensor:
        """[B] true for responses that the length limit cut, where the critic's value is to continue them."""
        cut = torch.tensor([not r.finished for r in rollouts], device=scores.mask.device)
        bootstraps = self.config.algo.truncated == "bootstrap" and scores.last_values is not None
        return cut if bootstraps else torch.zeros_like(cut)

    def _inputs(
        self,
        rollouts: Sequence[Rollout],
        scores: ModelScores,
        rewards: Tensor,
        continued: Tensor,
        verdicts: Verdicts,
        monte_carlo: bool,
    ) -> AdvantageInputs:
        """What advantages and critic targets are made of, with token rewards [B, R]; responses that are `continued` ([B]) by the
        critic's value end with it."""
        a, device = self.config.algo, rewards.device
        # [B] the value after the last token; 0 where the response ends.
        bootstrap = None if scores.last_values is None else scores.last_values.masked_fill(~continued, 0.0)
        return AdvantageInputs(
            rewards,
            scores.values,
            scores.mask,
            gamma=a.gamma,
            lam=a.lam,
            critic_lam=1.0 if monte_carlo else a.critic_lam,
            lam_alpha=a.lam_alpha,
            bootstrap=bootstrap,
            # Responses to one prompt stand in a row, so their place gives the group.
            groups=torch.arange(len(rollouts), device=device) // self.config.rollout.num_generations,
            scored=verdicts.scored.to(device),
            greedy_scores=None if verdicts.greedy is None else verdicts.greedy.to(device),
            score_norms=None if scores.squared_probs is None else score_norms(scores.logprobs, scores.squared_probs),
            turn_ends=self._turn_ends(rollouts, scores.mask) if self.config.env.discount_by == "turn" else None,
        )

    @staticmethod
    def _turn_ends(rollouts: Sequence[Rollout], mask: Tensor) -> Tensor:
        """[B, R] true on the last token of each turn of the policy."""
        ends = torch.zeros_like(mask)
        ends[mask] = torch.cat([rollout.turn_ends for rollout in rollouts]).to(mask.device)
        return ends

    def _sampler_logprobs(self, rollouts: Sequence[Rollout], scores: ModelScores, meter: Meter) -> Tensor | None:
        """[B, R] the engine's own logprobs, if the loss reads them. How far they are from the trainer's is recorded wherever
        there are both.

        Raises:
            UserError: they are to be corrected for, and the engine gave none.
        """
        a, needed = self.config.algo, self.correction.how != "none"
        given = [r.logprobs for r in rollouts if r.logprobs is not None]
        if len(given) < len(rollouts) or a.old_logprobs == "sampled":
            if needed:
                raise UserError(
                    f"--mismatch_correction {self.correction.how}: the engine gave no logprobs of what it sampled (this model may be "
                    "one that it leaves to transformers' generate): give --mismatch_correction none"
                )
            return None
        of_sampler = pad_sequence([row.float() for row in given], batch_first=True).to(scores.logprobs.device)
        # Scores have at least one column, the engine's none where all responses are empty.
        of_sampler = pad(of_sampler, (0, scores.mask.size(1) - of_sampler.size(1)))
        record_mismatch(meter, scores.logprobs, of_sampler, scores.mask, self.correction)
        return of_sampler if needed or a.off_policy_mask_threshold is not None else None

    def _controlled(
        self, scores: ModelScores, advantages: Tensor, mask: Tensor, meter: Meter, *seed: int | str
    ) -> Tensor | None:
        """[B, R] true on the tokens that `entropy_control` chooses; None without it. Collective."""
        a, device = self.config.algo, mask.device
        if a.entropy_control == "off":
            return None
        share = SHARES[a.entropy_control] if a.entropy_share is None else a.entropy_share
        lots = torch.Generator().manual_seed(derive_seed("entropy control", *seed, _rank()))
        chosen = choose_tokens(
            a.entropy_control,
            share,
            mask,
            logprobs=scores.logprobs,
            advantages=advantages,
            entropy=scores.entropy,
            lots=torch.rand(mask.shape, generator=lots).to(device),
            covariances_from=a.clip_cov_low,
            covariances_to=a.clip_cov_high,
            all_reduce=all_reduce_sum,
        )
        meter.add_tokens("policy/controlled", chosen.float(), mask)
        return chosen


class NaiveExperienceMaker(BaseExperienceMaker):
    """Makes experience with an engine and models that are all in this process.

    Args:
        actor, critic: the boosted roles; no critic for estimators that need none.
        reference: the frozen initial model; None when `kl_coef` is 0.
        reward_model: scores samples.
        engine: samples responses from the actor.
        sampling: how responses are drawn.
        tokenizer: turns responses into text for the reward functions.
        conversation: the template's tags and end marker.
        config: the run's settings.
        offload_reference: keep the reference off the device while it does not infer.
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
        config: Config,
        *,
        offload_reference: bool = False,
    ) -> None:
        super().__init__(reward_model, sampling, config)
        self.actor, self.critic, self.reference, self.engine = actor, critic, reference, engine
        self.tokenizer, self.conversation = tokenizer, conversation
        self.offload_reference = offload_reference

    def close(self) -> None:
        super().close()
        self.engine.close()

    def sampling_weights(self) -> AbstractContextManager[Any]:
        return self.actor.full_weights()

    def respond(
        self, prompts: Sequence[Prompt], sampling: Sampling, seconds: dict[str, float], *seed: int | str
    ) -> Responses:
        rollouts: list[Rollout] = []
        samples: list[Sample] = []
        scoring = self.reward_model.begin()
        with timed(seconds, "rollout"):
            # The rank too, or all processes would draw alike (pitfall A29).
            place = (*seed, _rank())
            with self.actor.full_weights() as actor:
                for batch in self.engine.stream(actor.model, prompts, sampling, place):
                    some = prompts[len(rollouts) : len(rollouts) + len(batch)]
                    new = samples_of(self.tokenizer, self.conversation, some, batch)
                    scoring.add(new)  # worker processes score these while the next are generated
                    rollouts.extend(batch)
                    samples.extend(new)
            scoring.complete()
        return Responses(rollouts, samples, scoring)

    def move_reference(self, share: float) -> None:
        assert isinstance(self.reference, Frozen)
        with self.actor.full_weights() as actor:
            self.reference.follow(dict(actor.named_parameters()), share)

    @property
    def saved_reference(self) -> SavedPart | None:
        return FrozenPart(self.reference) if isinstance(self.reference, Frozen) else None

    def run_models(self, rollouts: Sequence[Rollout], seconds: dict[str, float]) -> ModelScores:
        c, offloaded = self.config, self.reference if self.offload_reference else None
        with timed(seconds, "score"):
            if offloaded is not None:
                offloaded.to(self.actor.device)
            scores = score_rollouts(
                rollouts,
                self.actor,
                self.critic,
                self.reference,
                temperature=c.rollout.temperature,
                batch_size=c.rollout.generation_batch_size,
                pad_id=self.tokenizer.pad_token_id or 0,
                sampled_logprobs=c.algo.old_logprobs == "sampled",
                squared_probs=self.estimator.score_norms,
            )
            if offloaded is not None:
                offloaded.to("cpu")
        return scores


def samples_of(
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation | None,
    prompts: Sequence[Prompt],
    rollouts: Sequence[Rollout],
) -> list[Sample]:
    """The samples that reward functions see, one for each prompt and its response."""
    tags = conversation.tags if conversation else None
    pairs = zip(prompts, rollouts, strict=True)
    return [sample_of(tokenizer, prompt.problem, rollout, tags) for prompt, rollout in pairs]


def count_solved(prompts: Sequence[Prompt], verdicts: Verdicts) -> dict[str, tuple[int, int]]:
    """`Collected.solved` of some responses, given the prompt of each."""
    found: dict[str, tuple[int, int]] = {}
    for prompt, scored, right in zip(prompts, verdicts.scored.tolist(), verdicts.positive.tolist(), strict=True):
        tries, rights = found.get(prompt.problem.id, (0, 0))
        found[prompt.problem.id] = tries + scored, rights + (scored and right)
    return found


@contextmanager
def timed(seconds: dict[str, float], name: str) -> Iterator[None]:
    """Add the seconds that the block takes to `seconds[name]`, and tell the other processes that this one is in that phase."""
    start = time.perf_counter()
    enter_phase(name)
    yield
    seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _unpad(rollouts: Sequence[Rollout], columns: dict[str, Tensor]) -> list[Experience]:
    """Cut [B, R] columns into one `Experience` for each response: a mini-batch then pads to its own longest only."""
    lengths = [len(r.action_ids) for r in rollouts]
    rows = {name: split(tensor, lengths) for name, tensor in columns.items()}
    rows |= {name: [getattr(r, name) for r in rollouts] for name in (*TOKENS, "versions")}
    return [Experience(**{name: rows[name][i] for name in rows}) for i in range(len(rollouts))]
