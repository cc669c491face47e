"""`Learner`: one optimizer step of actor and critic on one mini-batch, the learning half of a training step.

`OnlineTrainer` calls `Learner.step` for each mini-batch of its buffer. The mini-batch is cut into micro-batches, and each
contributes its share of a loss that is normalised over the whole optimizer step (all micro-batches, all processes), so how it
is cut changes nothing (pitfall A20). The formulas themselves are pure functions in `rlvr.core.losses`; here they meet settings,
masks and metrics. Clipping the gradient, accumulation and precision are `Boosted`'s.

The local trainer's learner has both roles. On Ray the processes of each role have a learner with that role alone.
A new loss setting is read here, in the function of its loss, as `config.algo.NAME`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from rlvr.boost.boosted import Boosted, Pass
from rlvr.checkpoint.checkpointer import BoostedRole, SavedRole
from rlvr.config import AlgoConfig, Config
from rlvr.config.conditions import correction_of, kl_kind_of
from rlvr.core.kl import kl_estimate
from rlvr.core.losses import (
    PolicyLoss,
    StepSize,
    aggregate,
    cispo_loss,
    clipped_policy_loss,
    clipped_value_loss,
    kl_cov_penalty,
    lm_loss,
    sapo_loss,
    sequence_logprobs,
)
from rlvr.core.masked import zero_unless
from rlvr.core.mismatch import drifted, importance_weights
from rlvr.data.examples import Example
from rlvr.experience.experience import TOKENS, Experience, pad, pool
from rlvr.experience.micro_batches import cut_on_all_ranks
from rlvr.models.actor import ActorOutput
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.packing import collate_examples
from rlvr.models.value_head import CriticOutput
from rlvr.tracking.meter import Meter


@dataclass(frozen=True)
class MicroBatch:
    """Padded experience of b responses on the device; fields are [b, R] and named as in `Experience`."""

    sequences: SequenceBatch
    logprobs: Tensor
    ref_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    values: Tensor | None = None
    returns: Tensor | None = None
    sampler_logprobs: Tensor | None = None
    positive: Tensor | None = None
    controlled: Tensor | None = None


@dataclass(frozen=True)
class Step:
    """The inputs of a loss that are the same for all micro-batches of an optimizer step.

    Attributes:
        config: the run's settings.
        kl_coef: present weight of the divergence; the settings hold the one that the run began with.
        meter: receives the metrics.
        size: trained tokens and responses over all replicas, which losses are divided by.
        positives: the same of right responses only; None without the loss on them.
        ptx_size: the same of the ptx rows; None without a ptx loss.
    """

    config: Config
    kl_coef: float
    meter: Meter
    size: StepSize
    positives: StepSize | None = None
    ptx_size: StepSize | None = None


class Learner:
    """The roles that learn in this process, and their optimizer step.

    Args:
        config: the run's settings.
        actor, critic: the boosted roles; None for one that is elsewhere. An actor that gives values needs no critic.
        tokenizer: saved with the actor; its pad token stands in padding, which no result depends on.
        pin_memory: pin batches on their way to a GPU.
    """

    def __init__(
        self,
        config: Config,
        actor: Boosted | None,
        critic: Boosted | None,
        tokenizer: object = None,
        *,
        pin_memory: bool = True,
    ) -> None:
        self.config, self.actor, self.critic, self.tokenizer = config, actor, critic, tokenizer
        self.pad_id: int = getattr(tokenizer, "pad_token_id", None) or 0
        self.pin_memory = pin_memory

    @property
    def roles(self) -> dict[str, Boosted]:
        named = {"actor": self.actor, "critic": self.critic}
        return {name: role for name, role in named.items() if role is not None}

    @property
    def _first(self) -> Boosted:
        """Any of the roles, as all divide samples among processes alike."""
        return next(iter(self.roles.values()))

    @property
    def has_critic(self) -> bool:
        return self.critic is not None

    @property
    def has_adapter(self) -> bool:
        return self.actor is not None and self.actor.unwrapped.has_adapter

    @property
    def device(self) -> torch.device:
        return self._first.device

    @property
    def replicas(self) -> int:
        return self._first.replica.count

    @property
    def saved_roles(self) -> Mapping[str, SavedRole]:
        return {
            name: BoostedRole(role, self.tokenizer if name == "actor" else None) for name, role in self.roles.items()
        }

    @property
    def skipped(self) -> int:
        """Optimizer steps in a row that a role has skipped; the most of any."""
        return max(role.skipped for role in self.roles.values())

    @property
    def packs(self) -> bool:
        """True if all roles run rows without padding."""
        return all(role.unwrapped.packs for role in self.roles.values())

    def add_up(self, values: Tensor) -> Tensor:
        """The sum over the replicas. Collective."""
        return self._first.replica.sum(values)

    def pool(self, items: Sequence[Experience]) -> Sequence[Experience]:
        """The items of all processes of this replica, given this process's. Collective among them."""
        return pool(items, self._first.replica, self.config.rollout.num_generations)

    def step(
        self,
        batch: Sequence[Experience],
        meter: Meter,
        *,
        kl_coef: float,
        actor_learns: bool = True,
        ptx: Sequence[Example] = (),
    ) -> None:
        """One optimizer step of each role on this replica's share of a mini-batch. Collective.

        Args:
            batch: the share.
            meter: receives losses, norms and rates.
            kl_coef: present weight of the divergence.
            actor_learns: false while only the critic is warmed up.
            ptx: this replica's rows of the ptx data; empty without a ptx loss.
        """
        # The losses of a replica are counted once, by one of its processes.
        meter = meter if self._first.reports else Meter()
        if self.actor is not None and actor_learns:
            ptx_batches, ptx_size = self._ptx(ptx)
            meter.add("lr", self.actor.lr)
            step = self._actor_step(batch, meter, kl_coef, ptx_size)
            train_actor(self.actor, self._learned(batch, step.size), step, ptx_batches)
        if self.critic is not None:
            meter.add("train/lr_critic", self.critic.lr)
            for part in _parts(batch, self.config.train.critic_steps):
                size = self.size_of(part)
                train_critic(self.critic, self._learned(part, size), Step(self.config, kl_coef, meter, size))

    def actor_gradient(self, batch: Sequence[Experience], *, kl_coef: float) -> Tensor:
        """[weights that learn] the gradient of the actor's loss on a mini-batch, neither clipped nor applied; without a ptx
        loss. For plugins that leave gradients with the weights (ddp)."""
        assert self.actor is not None
        step = self._actor_step(batch, Meter(), kl_coef, None)
        return self.actor.gradient(_actor_passes(self.actor, self._learned(batch, step.size), step))

    def _actor_step(self, batch: Sequence[Experience], meter: Meter, kl_coef: float, ptx_size: StepSize | None) -> Step:
        positives = None
        # Collective, so decided by the setting and not by what this rank's share holds (pitfall A24).
        if self.config.algo.positive_lm_coef:
            positives = self.total_size([i.mask & i.positive for i in batch if i.positive is not None])
        return Step(self.config, kl_coef, meter, self.size_of(batch), positives, ptx_size)

    def forget_moments(self) -> None:
        """Let the actor's optimizer begin anew."""
        if self.actor is not None:
            self.actor.forget_moments()

    def size_of(self, batch: Sequence[Experience]) -> StepSize:
        """Totals of an optimizer step on these items of this replica, over all replicas. Collective."""
        return self.total_size([item.mask for item in batch])

    def total_size(self, masks: Sequence[Tensor]) -> StepSize:
        """Trained tokens of an optimizer step and responses with at least one, over all replicas. Collective.

        Args:
            masks: [R] of each response of this replica.
        """
        # In float64: float32 counts exactly only to 2^24, and a step of long responses has more tokens.
        counts = [sum(int(mask.sum()) for mask in masks), sum(bool(mask.any()) for mask in masks)]
        tokens, sequences = self.add_up(torch.tensor(counts, dtype=torch.float64, device=self.device)).tolist()
        return StepSize(tokens=tokens, sequences=sequences)

    def _learned(self, items: Sequence[Experience], size: StepSize) -> list[MicroBatch]:
        """The items of an optimizer step as micro-batches. Without a trained token there are none, and there is no step; that is
        decided by what all replicas have together (pitfall A24)."""
        return self.cut(items) if size.tokens else []

    def cut(self, items: Sequence[Experience]) -> list[MicroBatch]:
        """The items of an optimizer step as micro-batches that cost little; the same number on every rank. Collective.

        Each holds at most this replica's share of `train_batch_size` responses and, if that is set, `micro_batch_tokens`
        tokens.
        """
        t = self.config.train
        rows = max(1, t.train_batch_size // self.replicas)
        lengths = [len(item.prompt_ids) + len(item.response_ids) for item in items]
        ids = [torch.cat([item.prompt_ids, item.response_ids]).tolist() for item in items] if self.packs else None
        passes = cut_on_all_ranks(lengths, rows, self.device, max_tokens=t.micro_batch_tokens, sequences=ids)
        return [self.make_micro_batch([items[i] for i in places]) for places in passes]

    def make_micro_batch(self, items: Sequence[Experience]) -> MicroBatch:
        """Pad the items to their own longest response and move them to the device."""
        sequences = collate(*([getattr(i, name) for i in items] for name in TOKENS), pad_id=self.pad_id)
        # Fields that are None (values without a critic, say) are so in all items alike.
        padded = {name: pad(items, name, torch.device("cpu")) for name in items[0].columns()}
        # Pinned memory is copied to the GPU while the host goes on.
        if self.pin_memory and self.device.type != "cpu":
            padded = {name: tensor.pin_memory() for name, tensor in padded.items()}
        moved = {name: tensor.to(self.device, non_blocking=True) for name, tensor in padded.items()}
        return MicroBatch(sequences.to(self.device), **moved)

    def _ptx(self, rows: Sequence[Example]) -> tuple[list[SequenceBatch], StepSize | None]:
        """This replica's ptx rows as one batch, and the size of all replicas' together. Collective."""
        if not self.config.algo.ptx_coef:
            return [], None
        batch = collate_examples([[row] for row in rows], self.pad_id).to(self.device)
        return [batch], self.total_size(list(batch.response_mask))


def _parts(batch: Sequence[Experience], count: int) -> list[Sequence[Experience]]:
    """The batch cut into this many parts, as alike in size as may be and none of them empty: the same number on every rank."""
    cuts = [len(batch) * i // count for i in range(count + 1)]
    return [batch[a:b] for a, b in pairwise(cuts) if a < b]


def train_actor(
    actor: Boosted, micro_batches: Sequence[MicroBatch], step: Step, ptx: Sequence[SequenceBatch] = ()
) -> None:
    """Accumulate the policy loss (and ptx loss) over the micro-batches, then one optimizer step.

    An actor that gives values learns them in the same passes.
    """
    passes = [Pass(actor, (batch,), partial(ptx_loss, batch, step)) for batch in ptx]
    passes += _actor_passes(actor, micro_batches, step)
    _learn(actor, passes, step.meter, "actor", *(["critic"] if actor.unwrapped.gives_values else []))


def _actor_passes(actor: Boosted, micro_batches: Sequence[MicroBatch], step: Step) -> list[Pass]:
    options = (step.config.rollout.temperature, bool(step.config.algo.entropy_coef))
    return [Pass(actor, (batch.sequences, *options), partial(actor_loss, batch, step)) for batch in micro_batches]


def train_critic(critic: Boosted, micro_batches: Sequence[MicroBatch], step: Step) -> None:
    """Accumulate the value loss over the micro-batches, then one optimizer step."""
    passes = [Pass(critic, (batch.sequences,), partial(critic_loss, batch, step)) for batch in micro_batches]
    _learn(critic, passes, step.meter, "critic")


def _learn(role: Boosted, passes: Sequence[Pass], meter: Meter, name: str, *also: str) -> None:
    """One optimizer step, and its metrics. Losses are added to the meter in shares with count 0, and their mean is over steps;
    each replica counts its part of the step.

    Args:
        name: of the role.
        also: the loss that the same step counts for besides.
    """
    role.learn(passes)
    if not passes:
        return
    part = 1 / role.replica.count
    meter.add_count(f"skipped_steps/{name}", part if role.skipped else 0.0)
    for loss in (name, *also):
        meter.add(f"train/{loss}_loss", 0.0, part)
    if not role.skipped:  # else there is no norm, and one step would hide those of all others
        meter.add(f"grad_norm/{name}", role.grad_norm)


def actor_loss(batch: MicroBatch, step: Step, new: ActorOutput) -> Tensor:
    """This micro-batch's share of the actor's loss: the policy loss and, for an actor that gives values, the value loss."""
    total = policy_loss(new, batch, step)
    return total if new.values is None else total + value_loss(new.values, batch, step)


def critic_loss(batch: MicroBatch, step: Step, new: CriticOutput) -> Tensor:
    """This micro-batch's share of the critic's loss."""
    return value_loss(new.values, batch, step)


def policy_loss(new: ActorOutput, batch: MicroBatch, step: Step) -> Tensor:
    """This micro-batch's share of the policy's loss.

    The clipped policy loss, less the entropy bonus, plus (where they are asked for) the divergence from the initial model and
    the language-modelling loss on right responses. Source: Schulman et al. 2017, eq. 7.
    """
    a, mask, meter = step.config.algo, batch.mask, step.meter
    by_response = a.ratio == "sequence"
    # With `--ratio sequence` (GSPO) every token of a response carries the ratio of the whole response.
    logprobs = sequence_logprobs(new.logprobs, batch.logprobs, mask) if by_response else new.logprobs
    loss = _surrogate(logprobs, batch, a)
    # [b, R] each. Only the policy loss has to do with the policy that sampled: entropy and divergence are those of the present one.
    weights = _weights(new.logprobs, batch, step)
    per_token = loss.loss if weights is None else loss.loss * weights
    if batch.controlled is not None:
        per_token = _entropy_controlled(per_token, new.logprobs, batch, batch.controlled, a)
    if a.entropy_coef:
        per_token = per_token - a.entropy_coef * new.entropy
    # With `kl_in` "reward" the divergence is in the advantages already: never both (pitfall A15).
    if a.kl_in == "loss" and step.kl_coef:
        kl = kl_estimate(new.logprobs, batch.ref_logprobs, kl_kind_of(step.config), batch.logprobs)
        per_token = per_token + step.kl_coef * kl
        meter.add_tokens("loss/kl_avg", kl, mask)
    total = _aggregate(per_token, mask, step)
    if step.positives is not None and batch.positive is not None:
        total = total + _positive_loss(new.logprobs, mask & batch.positive, step, step.positives)
    meter.add("train/actor_loss", total.detach(), 0)
    meter.add_tokens("loss/policy_avg", loss.loss, mask)
    # With sequence ratios `loss.approx_kl` would be that of means over responses. Taken per token, the metric stays comparable
    # between the two kinds of ratio.
    approx_kl = kl_estimate(new.logprobs.detach(), batch.logprobs, "k2") if by_response else loss.approx_kl
    meter.add_tokens("policy/approxkl_avg", approx_kl, mask)
    meter.add_tokens("policy/clipfrac_avg", loss.clipped.float(), mask)
    meter.add_tokens("val/ratio", loss.ratio, mask)
    meter.add_max("train/max_ratio", loss.ratio, mask)
    meter.add_tokens("_ratio_squared", loss.ratio.double() ** 2, mask)
    return total


def _surrogate(logprobs: Tensor, batch: MicroBatch, a: AlgoConfig) -> PolicyLoss:
    """The policy loss by its name, [b, R]."""
    inputs = (logprobs, batch.logprobs, batch.advantages)
    if a.policy_loss == "sapo":
        return sapo_loss(*inputs, tau_pos=a.tau_pos, tau_neg=a.tau_neg)
    if a.policy_loss == "cispo":
        return cispo_loss(*inputs, clip_range=a.eps_clip, clip_range_high=a.eps_clip_high)
    return clipped_policy_loss(*inputs, clip_range=a.eps_clip, clip_range_high=a.eps_clip_high, dual_clip=a.dual_clip)


def _weights(logprobs: Tensor, batch: MicroBatch, step: Step) -> Tensor | None:
    """[b, R] weights of the policy loss: for responses of an engine, or of a policy, that is not the present one; None
    = 1."""
    c, mask = step.config, batch.mask
    correction, threshold = correction_of(c), c.algo.off_policy_mask_threshold
    weights = None
    if correction.how != "none":
        assert batch.sampler_logprobs is not None, "made without the engine's logprobs"
        weights = importance_weights(batch.logprobs, batch.sampler_logprobs, mask, correction)
    if threshold is not None:
        sampled_with = batch.logprobs if batch.sampler_logprobs is None else batch.sampler_logprobs
        left_out = drifted(logprobs, sampled_with, batch.advantages, mask, threshold)
        step.meter.add_tokens("policy/drifted", left_out.float(), mask)
        weights = torch.where(left_out, 0.0, 1.0 if weights is None else weights)
    return weights


def _entropy_controlled(
    per_token: Tensor, logprobs: Tensor, batch: MicroBatch, chosen: Tensor, a: AlgoConfig
) -> Tensor:
    """The policy loss, [b, R], with the tokens that `entropy_control` chose treated as it says (`rlvr.core.entropy_control`)."""
    if a.entropy_control == "kl_cov":
        return per_token + a.kl_cov_coef * kl_cov_penalty(logprobs, batch.logprobs, chosen)
    # What is left out still counts in the divisor, as in the papers.
    return zero_unless(chosen if a.entropy_control == "top_entropy" else ~chosen, per_token)


def _aggregate(per_token: Tensor, mask: Tensor, step: Step) -> Tensor:
    """Reduce a [b, R] loss as `loss_reduction` says; `constant` divides by the length limit of responses (Dr. GRPO)."""
    c = step.config
    return aggregate(per_token, mask, step.size, c.algo.loss_reduction, c.rollout.max_new_tokens)


def _positive_loss(logprobs: Tensor, mask: Tensor, step: Step, size: StepSize) -> Tensor:
    """`positive_lm_coef` times the mean negative log-likelihood of right responses (VAPO, arXiv:2504.05118)."""
    per_token = lm_loss(logprobs)
    step.meter.add_tokens("loss/positive_lm_avg", per_token, mask)
    return step.config.algo.positive_lm_coef * aggregate(per_token, mask, size, "token_mean")


def value_loss(values: Tensor, batch: MicroBatch, step: Step) -> Tensor:
    """This micro-batch's share of `vf_coef` times the clipped value loss."""
    assert batch.values is not None and batch.returns is not None, "made without values"
    a = step.config.algo
    loss = clipped_value_loss(values, batch.values, batch.returns, value_clip=a.value_clip)
    step.meter.add_tokens("loss/value_avg", loss.loss, batch.mask)
    step.meter.add_tokens("val/clipfrac_avg", loss.clipped.float(), batch.mask)
    total = _aggregate(loss.loss, batch.mask, step)
    step.meter.add("train/critic_loss", total.detach(), 0)
    return a.vf_coef * total


def ptx_loss(batch: SequenceBatch, step: Step, new: ActorOutput) -> Tensor:
    """This micro-batch's share of `ptx_coef` times the language-modelling loss on supervised data."""
    assert step.ptx_size is not None
    # [b, R]
    per_token = lm_loss(new.logprobs)
    step.meter.add_tokens("train/ptx_loss", per_token, batch.response_mask)
    loss = step.config.algo.ptx_coef * aggregate(per_token, batch.response_mask, step.ptx_size, "token_mean")
    # Gemini needs a gradient for every weight in every backward pass, a value head's too.
    return loss if new.values is None else loss + 0.0 * new.values.sum()
