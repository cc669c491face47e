"""A step of a run with other settings or rewards: what would the update have been?

Both sides begin with the weights and the optimizer that the step began with, and have the same responses. Advantages are formed
anew from the responses and their scores, with each side's own settings; then each takes the step. It runs in one process under
ddp, whatever the run had, so that the two differ in nothing but what was asked for.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from rewards.combine import Combined
from rlvr.boost.boosted import Boosted
from rlvr.config import Config, ParallelConfig, RayConfig
from rlvr.core.kl import kl_estimate
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError
from rlvr.experience.experience import Experience, pad
from rlvr.experience.maker import samples_of
from rlvr.experience.verdicts import Verdicts
from rlvr.journal.journal import Journal, JournalledSample
from rlvr.replay.repeat import Bench, opened, stretch_to
from rlvr.rollout.engine import Rollout
from rlvr.tracking.meter import Meter
from rlvr.trainer.callbacks import Callback
from rlvr.trainer.online import OnlineTrainer
from rlvr.trainer.ppo import LocalPPOTrainer
from rlvr.validate.ppo import check_config

CHANGEABLE = ("algo", "reward")
"""Sections whose settings a step can be taken with instead; and of `train`, those of `CHANGEABLE_IN_TRAINING`: the others have
their effect before the step (sampling), or are part of the optimizer's saved state (learning rates)."""
CHANGEABLE_IN_TRAINING = (
    "num_update_steps", "train_batch_size", "accumulation_steps", "sample_buffer", "critic_steps", "grad_clip", "micro_batch_tokens",
)  # fmt: skip

AFTER_A_STEP = ("reference_reset_interval", "reference_mix")
"""Settings of these sections that have their effect when a step is over."""


@dataclass(frozen=True)
class Effect:
    """What a step does.

    Attributes:
        metrics: the row of metrics.
        reward: mean score of the responses.
        gradient: [weights] of the actor's loss on the first mini-batch, before clipping.
        change: [weights] of the actor's weights over the whole step.
        kl: mean over the response tokens of KL(before || after), k3, in nats.
    """

    metrics: Mapping[str, float]
    reward: float
    gradient: Tensor
    change: Tensor
    kl: float


@dataclass(frozen=True)
class Counterfactual:
    """A step as it was, and otherwise."""

    was: Effect
    otherwise: Effect

    @property
    def gradient_cosine(self) -> float:
        """Cosine of the angle between the two gradients."""
        return _cosine(self.was.gradient, self.otherwise.gradient)

    @property
    def change_cosine(self) -> float:
        """Cosine of the angle between the two changes of the weights."""
        return _cosine(self.was.change, self.otherwise.change)


def counterfactual(run: Path, config: Config, changed: Config, step: int) -> Counterfactual:
    """Take a step of a run with its own settings, and with changed ones.

    Args:
        run: the run's folder.
        config, changed: its settings, and those to compare with.
        step: the episode, counted from 1.

    Raises:
        UserError: settings that a finished rollout can't be learned from with, or a step that can't be computed again.
    """
    check_changes(config, changed)
    check_config(changed)
    journal, stretch = Journal(run), stretch_to(run, step)
    with TemporaryDirectory(prefix="rlvr-counterfactual-") as folder:
        start = Path(folder) / "start"
        with opened(_in_one_process(config)) as bench:
            bench.begin(stretch.checkpoint)
            for earlier in stretch.steps[:-1]:
                items, meter, _ = _of_all(journal, earlier, bench.trainer)
                bench.learn_from(items, meter, journal.info(earlier).kl_coef)
            saved = bench.trainer.save_checkpoint()
            assert saved is not None
            shutil.copytree(saved, start)
            run_state = bench.trainer.checkpointer.run_state
            was = _effect(bench, journal, step, regraded=False, kl_coef=None)
        with opened(_in_one_process(changed)) as bench:
            bench.trainer.checkpointer.run_state = run_state  # it differs in what was asked for
            bench.begin(start)
            kl_coef = changed.algo.kl_coef if changed.algo.kl_coef != config.algo.kl_coef else None
            otherwise = _effect(bench, journal, step, regraded=changed.reward != config.reward, kl_coef=kl_coef)
    return Counterfactual(was, otherwise)


def check_changes(config: Config, changed: Config) -> None:
    """Raise `UserError` for a change that would have no effect on a step whose responses are there, or need other ones."""
    for section in (field.name for field in fields(config)):
        before, after = getattr(config, section), getattr(changed, section)
        for name in (field.name for field in fields(before)):
            can = section in CHANGEABLE or (section == "train" and name in CHANGEABLE_IN_TRAINING)
            if getattr(before, name) == getattr(after, name) or (can and name not in AFTER_A_STEP):
                continue
            raise UserError(
                f"--{name} can't be changed for a step whose responses are there: give settings of the loss, the advantages or the "
                f"rewards (see the groups {' and '.join(CHANGEABLE)} of `rlvr train --help`), or {', '.join(CHANGEABLE_IN_TRAINING)}"
            )


def _in_one_process(config: Config) -> Config:
    precision = config.parallel.mixed_precision
    return replace(config, ray=RayConfig(), parallel=ParallelConfig(mixed_precision=precision))


def _of_all(
    journal: Journal, step: int, trainer: OnlineTrainer
) -> tuple[list[Experience], dict[str, Any], list[JournalledSample]]:
    """The experience of all processes, in the order in which one process would have it, with their samples and added metrics.

    Raises:
        UserError: the processes did not learn from what they sampled.
    """
    info = journal.info(step)
    if info.replicas != info.processes:
        raise UserError(
            f"step {step} was learned by copies of the model that several processes share (--tp, --pp, --sp): no "
            "counterfactual can be computed"
        )
    t = trainer.config.train
    share = max(1, t.train_batch_size // info.replicas) * t.accumulation_steps
    meter, items, samples = Meter(), [], []
    for rank in range(info.processes):
        mine, state = journal.experience(step, rank)
        said = list(chain.from_iterable(journal.samples(step, rank)))
        if len(said) != len(mine):
            raise UserError(
                f"step {step} learned from {len(mine)} of {len(said)} responses (--buffer_limit): no counterfactual"
            )
        meter.merge(state)
        items.append([mine[i : i + share] for i in range(0, len(mine), share)])
        samples.append([said[i : i + share] for i in range(0, len(said), share)])
    return (
        [item for turn in zip(*items, strict=True) for part in turn for item in part],
        meter.state_dict(),
        [said for turn in zip(*samples, strict=True) for part in turn for said in part],
    )


def _effect(bench: Bench, journal: Journal, step: int, *, regraded: bool, kl_coef: float | None) -> Effect:
    trainer = bench.trainer
    assert isinstance(trainer, LocalPPOTrainer)
    items, _, samples = _of_all(journal, step, trainer)
    rollouts = [
        Rollout(
            item.prompt_ids,
            item.response_ids,
            "stop" if said.finished else "length",
            item.sampler_logprobs,
            item.action_mask,
        )
        for item, said in zip(items, samples, strict=True)
    ]
    results = _grade(trainer, rollouts, samples) if regraded else [said.result for said in samples]
    weight = journal.info(step).kl_coef if kl_coef is None else kl_coef
    trainer.kl_coef = weight
    meter = Meter()
    again = _form(trainer, rollouts, results, meter)
    before = _weights(trainer.actor)
    first = _FirstGradient()
    metrics = bench.learn_from(again, meter.state_dict(), weight, whitened=False, also=first)
    with torch.no_grad():
        scores = trainer.maker.run_models(rollouts, {})
    old = pad(again, "logprobs", scores.logprobs.device)
    kl = kl_estimate(old, scores.logprobs, "k3")[scores.mask].double().mean()
    totals = [result.total for result in results if result.total is not None]
    mean = sum(totals) / len(totals) if totals else 0.0
    return Effect(metrics, mean, first.gradient, _weights(trainer.actor) - before, float(kl))


def _grade(
    trainer: LocalPPOTrainer, rollouts: Sequence[Rollout], samples: Sequence[JournalledSample]
) -> list[Combined]:
    """Scores by the reward functions of the trainer."""
    prompts = [
        Prompt(Problem("", said.question or "", said.gold, said.columns), tuple(rollout.prompt_ids.tolist()))
        for rollout, said in zip(rollouts, samples, strict=True)
    ]
    scoring = trainer.maker.reward_model.begin()
    scoring.add(samples_of(trainer.tokenizer, trainer.conversation, prompts, rollouts))
    scoring.complete()
    return scoring.result()


def _form(
    trainer: LocalPPOTrainer, rollouts: Sequence[Rollout], results: Sequence[Combined], meter: Meter
) -> list[Experience]:
    """The experience of all collect steps, from responses and scores."""
    maker, config, formed = trainer.maker, trainer.config, list[Experience]()
    if maker.estimator.greedy:
        raise UserError(
            f"--estimator {maker.estimator.name} compares with greedy responses, which the journal does not have"
        )
    steps, group = config.train.num_collect_steps, config.rollout.num_generations
    size = len(rollouts) // steps
    for step in range(steps):
        part = slice(step * size, (step + 1) * size)
        with torch.no_grad():
            scores = maker.run_models(rollouts[part], {})
        verdicts = maker.judge(rollouts[part], results[part], meter)
        if config.algo.dynamic_sampling:  # groups without signal only filled the batch
            verdicts = _with_signal(verdicts, group)
        place = (config.train.seed, trainer.progress.episode, step)
        with torch.no_grad():
            formed += maker.assemble(
                rollouts[part], scores, verdicts, meter, {}, *place, monte_carlo=trainer.pretrains_values
            )
    return formed


def _with_signal(verdicts: Verdicts, group: int) -> Verdicts:
    signal = verdicts.groups_with_signal(group).repeat_interleave(group)
    return verdicts.take(range(len(signal)), signal)


class _FirstGradient(Callback):
    """The actor's gradient on the first mini-batch of a step."""

    gradient = torch.zeros(0)

    def on_learn_batch_start(self, trainer: LocalPPOTrainer) -> None:
        if not len(self.gradient):
            batch = next(trainer.mini_batches())
            self.gradient = trainer.learner.actor_gradient(batch, kl_coef=trainer.kl_coef)


def _weights(role: Boosted) -> Tensor:
    """[weights] those that learn, as precise as they are."""
    with role.full_precision_weights() as module:
        return torch.cat([p.detach().float().cpu().flatten() for p in module.parameters() if p.requires_grad])


def _cosine(first: Tensor, second: Tensor) -> float:
    norms = first.double().norm() * second.double().norm()
    return float(first.double() @ second.double() / norms) if norms else float("nan")
