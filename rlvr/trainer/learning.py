"""One optimizer step of actor and critic on one mini-batch: the mathematics of phase 4.

A mini-batch is cut into micro-batches; each contributes its share of a loss that is normalised over the whole
optimizer step (all micro-batches, all ranks), so how it is cut changes nothing (pitfall A20).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from rlvr.boost.boosted import Boosted, Pass
from rlvr.boost.process import all_reduce_sum
from rlvr.boost.replica import Replica
from rlvr.core.kl import kl_estimate
from rlvr.core.losses import (
    StepSize,
    aggregate,
    clipped_policy_loss,
    clipped_value_loss,
    lm_loss,
    sequence_logprobs,
)
from rlvr.data.examples import Example
from rlvr.experience.cutting import cut_on_all_ranks
from rlvr.experience.experience import Experience, pad
from rlvr.metrics import Meter
from rlvr.models.actor import ActorOutput
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.shared_rows import collate_examples
from rlvr.models.value_head import CriticOutput
from rlvr.trainer.settings import PPOSettings

AddUp = Callable[[Tensor], Tensor]
"""Sums a small tensor over the processes that have samples of their own."""


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
    importance: Tensor | None = None
    positive: Tensor | None = None


def make_micro_batch(items: Sequence[Experience], device: torch.device, settings: PPOSettings) -> MicroBatch:
    """Pad the items to their own longest response and move them to the device."""
    sequences = collate(
        [i.prompt_ids.cpu() for i in items], [i.response_ids.cpu() for i in items], pad_id=settings.pad_id
    )
    names = [name for name in items[0].tensors() if name not in ("prompt_ids", "response_ids")]
    padded = {name: pad(items, name, torch.device("cpu")) for name in names}
    if settings.pin_memory and device.type == "cuda":
        padded = {name: tensor.pin_memory() for name, tensor in padded.items()}
    moved = {name: tensor.to(device, non_blocking=True) for name, tensor in padded.items()}
    return MicroBatch(sequences.to(device), **moved)


def cut_into_micro_batches(
    items: Sequence[Experience], max_rows: int, packed: bool, device: torch.device, settings: PPOSettings
) -> list[MicroBatch]:
    """The items of an optimizer step as micro-batches of similar length, as many on every rank. Collective.

    Each holds at most `max_rows` responses and, where there is that setting, `micro_batch_tokens` tokens. `packed`
    says that the models run them without padding.
    """
    lengths = [len(item.prompt_ids) + len(item.response_ids) for item in items]
    passes = cut_on_all_ranks(lengths, max_rows, device, max_tokens=settings.micro_batch_tokens, packed=packed)
    return [make_micro_batch([items[i] for i in rows], device, settings) for rows in passes]


def step_size(items: Sequence[Experience], device: torch.device, add_up: AddUp = all_reduce_sum) -> StepSize:
    """Trained tokens and responses of one optimizer step over all replicas, which `add_up` sums over. Collective."""
    tokens = sum(int(item.mask.sum()) for item in items)
    sequences = sum(bool(item.mask.any()) for item in items)
    total = add_up(torch.tensor([tokens, sequences], dtype=torch.float64, device=device))
    return StepSize(tokens=float(total[0]), sequences=float(total[1]))


def positive_size(items: Sequence[Experience], device: torch.device, add_up: AddUp = all_reduce_sum) -> StepSize:
    """Trained tokens and responses of one optimizer step, over all replicas, of right responses only. Collective."""
    masks = [item.mask & item.positive for item in items if item.positive is not None]
    counts = [sum(int(mask.sum()) for mask in masks), sum(bool(mask.any()) for mask in masks)]
    total = add_up(torch.tensor(counts, dtype=torch.float64, device=device))
    return StepSize(tokens=float(total[0]), sequences=float(total[1]))


def ptx_step(
    rows: Sequence[Example], device: torch.device, settings: PPOSettings, add_up: AddUp = all_reduce_sum
) -> tuple[list[SequenceBatch], StepSize]:
    """This replica's rows of the ptx data as one batch, and their tokens over all replicas. Collective."""
    batch = collate_examples([[row] for row in rows], settings.pad_id).to(device)
    counts = torch.tensor([float(batch.response_mask.sum()), len(rows)], dtype=torch.float64, device=device)
    total = add_up(counts)
    return [batch], StepSize(tokens=float(total[0]), sequences=float(total[1]))


def train_actor(
    actor: Boosted,
    micro_batches: Sequence[MicroBatch],
    size: StepSize,
    settings: PPOSettings,
    meter: Meter,
    ptx: Sequence[SequenceBatch] = (),
    ptx_size: StepSize | None = None,
    positives: StepSize | None = None,
) -> None:
    """Accumulate the policy loss (and ptx loss) over the micro-batches, then one optimizer step.

    An actor that gives values learns them in the same passes.
    """
    passes: list[Pass] = []
    if ptx_size is not None:
        passes += [Pass(actor, (batch,), partial(ptx_loss, batch, ptx_size, settings, meter)) for batch in ptx]
    for batch in micro_batches:
        inputs = (batch.sequences, settings.temperature, bool(settings.entropy_coef))
        passes.append(Pass(actor, inputs, partial(actor_loss, batch, size, settings, meter, positives)))
    actor.learn(passes)
    _count_step(meter, "actor", actor.replica)
    if actor.unwrapped.gives_values:
        _count_step(meter, "critic", actor.replica)
    meter.add("grad_norm/actor", actor.grad_norm)


def train_critic(
    critic: Boosted, micro_batches: Sequence[MicroBatch], size: StepSize, settings: PPOSettings, meter: Meter
) -> None:
    """Accumulate the value loss over the micro-batches, then one optimizer step."""
    critic.learn(
        [
            Pass(critic, (batch.sequences,), partial(critic_loss, batch, size, settings, meter))
            for batch in micro_batches
        ]
    )
    _count_step(meter, "critic", critic.replica)
    meter.add("grad_norm/critic", critic.grad_norm)


def _count_step(meter: Meter, role: str, replica: Replica) -> None:
    """Count one optimizer step over all replicas: losses are added up in shares, and their mean is over steps."""
    meter.add(f"train/{role}_loss", 0.0, 1 / replica.count)


def actor_loss(
    batch: MicroBatch,
    size: StepSize,
    settings: PPOSettings,
    meter: Meter,
    positives: StepSize | None,
    new: ActorOutput,
) -> Tensor:
    """This micro-batch's share of the actor's loss: that of the policy and, where the actor gives values, of these."""
    total = policy_loss(new, batch, size, settings, meter, positives)
    return total if new.values is None else total + value_loss(new.values, batch, size, settings, meter)


def critic_loss(batch: MicroBatch, size: StepSize, settings: PPOSettings, meter: Meter, new: CriticOutput) -> Tensor:
    """This micro-batch's share of the critic's loss."""
    return value_loss(new.values, batch, size, settings, meter)


def policy_loss(
    new: ActorOutput,
    batch: MicroBatch,
    size: StepSize,
    settings: PPOSettings,
    meter: Meter,
    positives: StepSize | None = None,
) -> Tensor:
    """This micro-batch's share of the clipped policy loss, entropy bonus and, where asked for, the divergence and the
    language-modelling loss on right responses (`positives` = their total size)."""
    s, mask = settings, batch.mask
    by_response = s.ratio == "sequence"
    loss = clipped_policy_loss(
        sequence_logprobs(new.logprobs, batch.logprobs, mask) if by_response else new.logprobs,
        batch.logprobs,
        batch.advantages,
        clip_range=s.eps_clip,
        clip_range_high=s.eps_clip_high,
        dual_clip=s.dual_clip,
    )
    per_token = loss.loss if batch.importance is None else loss.loss * batch.importance
    if s.entropy_coef:
        per_token = per_token - s.entropy_coef * new.entropy
    if s.kl_in == "loss" and s.kl_coef:
        kl = kl_estimate(new.logprobs, batch.ref_logprobs, s.kl_estimator)
        per_token = per_token + s.kl_coef * kl
        meter.add_tokens("loss/kl_avg", kl, mask)
    total = aggregate(per_token, mask, size, s.loss_reduction, s.constant_tokens)
    if positives is not None and batch.positive is not None:
        total = total + _positive_loss(new.logprobs, mask & batch.positive, positives, s, meter)
    meter.add("train/actor_loss", total.detach(), 0)
    meter.add_tokens("loss/policy_avg", loss.loss, mask)
    approx_kl = kl_estimate(new.logprobs.detach(), batch.logprobs, "k2") if by_response else loss.approx_kl
    meter.add_tokens("policy/approxkl_avg", approx_kl, mask)
    meter.add_tokens("policy/clipfrac_avg", loss.clipped.float(), mask)
    meter.add_tokens("val/ratio", loss.ratio, mask)
    meter.add_max("train/max_ratio", loss.ratio, mask)
    meter.add_tokens("_ratio_squared", loss.ratio.double() ** 2, mask)
    return total


def _positive_loss(logprobs: Tensor, mask: Tensor, size: StepSize, settings: PPOSettings, meter: Meter) -> Tensor:
    """`positive_lm_coef` times the mean negative log-likelihood of right responses (VAPO, arXiv:2504.05118)."""
    per_token = lm_loss(logprobs)
    meter.add_tokens("loss/positive_lm_avg", per_token, mask)
    return settings.positive_lm_coef * aggregate(per_token, mask, size, "token_mean")


def value_loss(values: Tensor, batch: MicroBatch, size: StepSize, settings: PPOSettings, meter: Meter) -> Tensor:
    """This micro-batch's share of `vf_coef` times the clipped value loss."""
    assert batch.values is not None and batch.returns is not None, "made without values"
    loss = clipped_value_loss(values, batch.values, batch.returns, value_clip=settings.value_clip)
    meter.add_tokens("loss/value_avg", loss.loss, batch.mask)
    meter.add_tokens("val/clipfrac_avg", loss.clipped.float(), batch.mask)
    total = aggregate(loss.loss, batch.mask, size, settings.loss_reduction, settings.constant_tokens)
    meter.add("train/critic_loss", total.detach(), 0)
    return settings.vf_coef * total


def ptx_loss(batch: SequenceBatch, size: StepSize, settings: PPOSettings, meter: Meter, new: ActorOutput) -> Tensor:
    """This micro-batch's share of `ptx_coef` times the language-modelling loss on supervised data."""
    per_token = lm_loss(new.logprobs)
    meter.add_tokens("train/ptx_loss", per_token, batch.response_mask)
    loss = settings.ptx_coef * aggregate(per_token, batch.response_mask, size, "token_mean")
    # Gemini wants a gradient of every weight in every pass, a value head's too.
    return loss if new.values is None else loss + 0.0 * new.values.sum()
