"""Forward passes without gradients over the sampled responses: logprobs, reference logprobs, values.

The scoring phase of a collect step (`time/score`), between sampling and advantages. Each model is a `Reader`, a function from
a batch to named columns; `read_rollouts` runs several of them over passes of similar length. The local maker reads all models
in one process (`score_rollouts`), and on Ray each role reads its own.

A pass is padded to its own longest sequence. The columns come back as [B, R] tensors over all responses, in the order of the
rollouts, with zeros behind the end of each response; the maker cuts these off.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlvr.boost.boosted import Boosted
from rlvr.boost.frozen import Reference
from rlvr.errors import UserError
from rlvr.experience.experience import TOKENS
from rlvr.experience.micro_batches import cut_on_all_ranks
from rlvr.models.batch import SequenceBatch, collate
from rlvr.rollout.engine import Rollout

Columns = dict[str, Tensor]
"""Model outputs for B responses by name: [B, R] of tokens, or [B]."""

Reader = Callable[[SequenceBatch, Sequence[Rollout]], Columns]
"""One model's columns for the responses of a batch."""


@dataclass(frozen=True)
class ModelScores:
    """The models' outputs for B responses, right-padded to the longest of them, on the device: R tokens that the policy chose.

    Attributes:
        logprobs, entropy, squared_probs, ref_logprobs, values: [B, R]; zero where there is no token. `ref_logprobs` is None
            without a reference model, `values` without a critic, `entropy` where the logprobs are the engine's, `squared_probs`
            (sums of squared probabilities over the vocabulary) unless the estimator reads score norms.
        last_values: [B] value after the last token; None without a critic.
        mask: [B, R] true on tokens.
    """

    logprobs: Tensor
    entropy: Tensor | None
    ref_logprobs: Tensor | None
    values: Tensor | None
    last_values: Tensor | None
    mask: Tensor
    squared_probs: Tensor | None = None


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
    squared_probs: bool = False,
) -> ModelScores:
    """Run the models over all rollouts in batches of similar length; the order of the rollouts is kept.

    The actor runs here exactly as it will in learning, so that the first ratio is 1 (pitfall A16). With
    `sampled_logprobs` it does not run: the logprobs are those that the engine sampled with, which differ by rounding.

    Args:
        rollouts: B responses with their prompts.
        actor, critic, reference: the models; those that are None leave their columns out.
        temperature: that of sampling; logprobs under actor and reference are both taken at it (pitfall A2).
        batch_size: most responses in one forward pass.
        pad_id: stands in padding, which no result depends on.
        squared_probs: read these too.

    Raises:
        UserError: `sampled_logprobs`, and the engine gives none.
    """
    with ExitStack() as stack:  # each role is prepared for scoring once, not for every pass
        readers = [policy_reader(actor, temperature, stack, sampled_logprobs, squared_probs)]
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
    """Run the readers over all rollouts: their columns and `mask` [B, R], in the order of the rollouts. Collective.

    Args:
        packed: the models run the rollouts without padding.
        batch_size: most of them in one forward pass.
    """
    size = max(1, max(len(r.action_ids) for r in rollouts))  # R; at least 1, for responses that are all empty
    columns: Columns = {}

    def keep(name: str, rows: list[int], values: Tensor) -> None:
        """Put a pass's values, [b, r] with r <= R or [b], at their rows' places."""
        shape = (len(rollouts), size) if values.dim() == 2 else (len(rollouts),)
        out = columns.setdefault(name, torch.zeros(shape, dtype=values.dtype, device=device))
        if values.dim() == 2:
            out[torch.tensor(rows, device=device), : values.size(1)] = values
        else:
            out[torch.tensor(rows, device=device)] = values

    lengths = [len(r.prompt_ids) + len(r.response_ids) for r in rollouts]
    # Where weights are sharded, every forward pass is collective: all ranks must make the same number of passes. They have
    # equally many rollouts, so no pass is empty.
    ids = [torch.cat([r.prompt_ids, r.response_ids]).tolist() for r in rollouts] if packed else None
    for rows in cut_on_all_ranks(lengths, batch_size, device, sequences=ids):
        some = [rollouts[i] for i in rows]
        batch = collate(*([getattr(r, name) for r in some] for name in TOKENS), pad_id=pad_id).to(device)
        keep("mask", rows, batch.response_mask)
        for reader in readers:
            for name, values in reader(batch, some).items():
                keep(name, rows, values)
    return columns


def policy_reader(
    actor: Boosted, temperature: float, stack: ExitStack, sampled: bool = False, squared_probs: bool = False
) -> Reader:
    """Reads `logprobs` and `entropy`, and from an actor with a value head `values` and `last_values`. Collective.

    Args:
        stack: the reader may be called until it is closed.
        sampled: read the engine's `logprobs` instead, without a forward pass.
        squared_probs: read these too.
    """
    run = stack.enter_context(actor.scoring())

    def read(batch: SequenceBatch, rollouts: Sequence[Rollout]) -> Columns:
        if sampled:
            return {"logprobs": _of_engine(rollouts, batch.response_mask.device)}
        out = run(batch, temperature, True, squared_probs)
        columns = {"logprobs": out.logprobs, "entropy": out.entropy}
        if squared_probs:
            columns["squared_probs"] = out.squared_probs
        if actor.unwrapped.gives_values:
            columns |= {"values": out.values, "last_values": out.last_values}
        return columns

    return read


def value_reader(critic: Boosted, stack: ExitStack) -> Reader:
    """Reads `values` and `last_values`; may be called until `stack` is closed. Collective."""
    run = stack.enter_context(critic.scoring())

    def read(batch: SequenceBatch, rollouts: Sequence[Rollout]) -> Columns:
        out = run(batch)
        return {"values": out.values, "last_values": out.last_values}

    return read


def reference_reader(reference: Reference, temperature: float) -> Reader:
    """Reads `ref_logprobs`, at the same temperature as the policy's (pitfall A2)."""

    def read(batch: SequenceBatch, rollouts: Sequence[Rollout]) -> Columns:
        return {"ref_logprobs": reference.forward(batch, temperature, with_entropy=False).logprobs}

    return read


def model_scores(columns: Columns) -> ModelScores:
    """The columns of all readers as one record; None stands for a column that no reader gave."""
    names = ("entropy", "squared_probs", "ref_logprobs", "values", "last_values")
    optional = {name: columns.get(name) for name in names}
    return ModelScores(logprobs=columns["logprobs"], mask=columns["mask"], **optional)


def _of_engine(rollouts: Sequence[Rollout], device: torch.device) -> Tensor:
    """[B, R] logprobs that the engine gave with the rollouts."""
    given = [rollout.logprobs for rollout in rollouts if rollout.logprobs is not None]
    if len(given) < len(rollouts):
        raise UserError(
            "old_logprobs 'sampled' needs an engine that gives the logprobs that it samples with (hf, vllm); take one, or "
            "old_logprobs 'recompute'"
        )
    return pad_sequence(given, batch_first=True).float().to(device)
