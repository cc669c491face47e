"""Forward passes without gradients over ragged responses: logprobs, reference logprobs, values."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlvr.boost.boosted import Boosted
from rlvr.errors import UserError
from rlvr.experience.cutting import cut_on_all_ranks
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.frozen import Reference
from rlvr.rollout.engine import Rollout

Columns = dict[str, Tensor]
"""Of several responses, by name: [B, R] or [B]."""

Reader = Callable[[SequenceBatch, Sequence[Rollout]], Columns]
"""What one model says of the responses of a batch."""


@dataclass(frozen=True)
class ModelScores:
    """Right-padded to the longest of all B responses, on the device.

    Attributes:
        logprobs, entropy, ref_logprobs, values: [B, R]; zero where there is no token. `ref_logprobs` is None without
            a reference model, `values` without a critic, `entropy` where the logprobs are the engine's.
        last_values: [B] value after the last token; None without a critic.
        mask: [B, R] true on tokens.
    """

    logprobs: Tensor
    entropy: Tensor | None
    ref_logprobs: Tensor | None
    values: Tensor | None
    last_values: Tensor | None
    mask: Tensor


@torch.no_grad()
def score_rollouts(
    rollouts: Sequence[Rollout],
    actor: Boosted,
    critic: Boosted | None,
    reference: Reference | None,
    *,
    temperature: float,
    batch_size: int,
    pad_id: int,
    sampled_logprobs: bool = False,
) -> ModelScores:
    """Run the models over all rollouts in batches of similar length; the order of the rollouts is kept.

    The actor runs here exactly as it will in learning, so that the first ratio is 1 (pitfall A16). With
    `sampled_logprobs` it does not run: the logprobs are those that the engine sampled with, which differ by rounding.

    Raises:
        UserError: `sampled_logprobs`, and the engine gives none.
    """
    with ExitStack() as stack:
        readers = [policy_reader(actor, temperature, stack, sampled_logprobs)]
        if critic is not None:
            readers.append(value_reader(critic, stack))
        if reference is not None:
            readers.append(reference_reader(reference, temperature))
        packed = all(role.unwrapped.packs for role in (actor, critic) if role is not None)
        columns = read_rollouts(
            rollouts, readers, packed=packed, batch_size=batch_size, pad_id=pad_id, device=actor.device
        )
    return model_scores(columns)


@torch.no_grad()
def read_rollouts(
    rollouts: Sequence[Rollout],
    readers: Sequence[Reader],
    *,
    packed: bool,
    batch_size: int,
    pad_id: int,
    device: torch.device,
) -> Columns:
    """What the readers say of all rollouts, and `mask` [B, R], in the order of the rollouts. Collective.

    Args:
        packed: the models run the rollouts without padding.
        batch_size: most of them in one forward pass.
    """
    size = max(1, max(len(r.response_ids) for r in rollouts))
    columns: Columns = {}

    def keep(name: str, rows: list[int], values: Tensor) -> None:
        shape = (len(rollouts), size) if values.dim() == 2 else (len(rollouts),)
        out = columns.setdefault(name, torch.zeros(shape, dtype=values.dtype, device=device))
        if values.dim() == 2:
            out[torch.tensor(rows, device=device), : values.size(1)] = values
        else:
            out[torch.tensor(rows, device=device)] = values

    lengths = [len(r.prompt_ids) + len(r.response_ids) for r in rollouts]
    # Where weights are sharded every forward pass is collective, too. All ranks have as many rollouts, so none is empty.
    for rows in cut_on_all_ranks(lengths, batch_size, device, packed=packed):
        some = [rollouts[i] for i in rows]
        batch = collate([r.prompt_ids for r in some], [r.response_ids for r in some], pad_id=pad_id).to(device)
        keep("mask", rows, batch.response_mask)
        for reader in readers:
            for name, values in reader(batch, some).items():
                keep(name, rows, values)
    return columns


def policy_reader(actor: Boosted, temperature: float, stack: ExitStack, sampled: bool = False) -> Reader:
    """Gives `logprobs` and `entropy`, and `values` and `last_values` where the actor does; with `sampled` the engine's
    `logprobs` alone. Until `stack` is closed. Collective."""
    run = stack.enter_context(actor.scoring())

    def read(batch: SequenceBatch, rollouts: Sequence[Rollout]) -> Columns:
        if sampled:
            return {"logprobs": _of_engine(rollouts, batch.response_mask.device)}
        out = run(batch, temperature)
        columns = {"logprobs": out.logprobs, "entropy": out.entropy}
        if actor.unwrapped.gives_values:
            columns |= {"values": out.values, "last_values": out.last_values}
        return columns

    return read


def value_reader(critic: Boosted, stack: ExitStack) -> Reader:
    """Gives `values` and `last_values`, until `stack` is closed. Collective."""
    run = stack.enter_context(critic.scoring())

    def read(batch: SequenceBatch, rollouts: Sequence[Rollout]) -> Columns:
        out = run(batch)
        return {"values": out.values, "last_values": out.last_values}

    return read


def reference_reader(reference: Reference, temperature: float) -> Reader:
    """Gives `ref_logprobs`."""

    def read(batch: SequenceBatch, rollouts: Sequence[Rollout]) -> Columns:
        return {"ref_logprobs": reference.forward(batch, temperature, with_entropy=False).logprobs}

    return read


def model_scores(columns: Columns) -> ModelScores:
    """The columns of all readers together; what none of them gave is None."""
    optional = {name: columns.get(name) for name in ("entropy", "ref_logprobs", "values", "last_values")}
    return ModelScores(logprobs=columns["logprobs"], mask=columns["mask"], **optional)


def _of_engine(rollouts: Sequence[Rollout], device: torch.device) -> Tensor:
    """[B, R] the logprobs that came with the rollouts."""
    given = [rollout.logprobs for rollout in rollouts if rollout.logprobs is not None]
    if len(given) < len(rollouts):
        raise UserError(
            "old_logprobs 'sampled' needs an engine that gives the logprobs that it samples with (hf, vllm); take one, or "
            "old_logprobs 'recompute'"
        )
    return pad_sequence(given, batch_first=True).float().to(device)
