"""Forward passes without gradients over ragged responses: logprobs, reference logprobs, values."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlvr.boost.boosted import Boosted
from rlvr.errors import UserError
from rlvr.experience.cutting import cut_on_all_ranks
from rlvr.models.batch import collate
from rlvr.models.frozen import Reference
from rlvr.rollout.engine import Rollout


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
    device = actor.device
    size = max(1, max(len(r.response_ids) for r in rollouts))
    columns: dict[str, Tensor] = {}

    def keep(name: str, rows: list[int], values: Tensor) -> None:
        shape = (len(rollouts), size) if values.dim() == 2 else (len(rollouts),)
        out = columns.setdefault(name, torch.zeros(shape, dtype=values.dtype, device=device))
        if values.dim() == 2:
            out[torch.tensor(rows, device=device), : values.size(1)] = values
        else:
            out[torch.tensor(rows, device=device)] = values

    lengths = [len(r.prompt_ids) + len(r.response_ids) for r in rollouts]
    roles = [role.unwrapped for role in (actor, critic) if role is not None]
    packed = all(role.packs for role in roles)
    # Where weights are sharded every forward pass is collective, too. All ranks have as many rollouts, so none is empty.
    passes = cut_on_all_ranks(lengths, batch_size, device, packed=packed)
    with actor.scoring() as act, critic.scoring() if critic is not None else nullcontext() as value_of:
        for rows in passes:
            batch = collate(
                [rollouts[i].prompt_ids for i in rows], [rollouts[i].response_ids for i in rows], pad_id=pad_id
            ).to(device)
            keep("mask", rows, batch.response_mask)
            if sampled_logprobs:
                keep("logprobs", rows, _of_engine([rollouts[i] for i in rows], device))
            else:
                policy = act(batch, temperature)
                keep("logprobs", rows, policy.logprobs)
                keep("entropy", rows, policy.entropy)
            if value_of is not None or actor.unwrapped.gives_values:
                value = value_of(batch) if value_of is not None else policy
                keep("values", rows, value.values)
                keep("last_values", rows, value.last_values)
            if reference is not None:
                keep("ref_logprobs", rows, reference.forward(batch, temperature, with_entropy=False).logprobs)
    without = {name: columns.pop(name, None) for name in ("entropy", "ref_logprobs", "values", "last_values")}
    return ModelScores(**without, **columns)  # type: ignore[arg-type]


def _of_engine(rollouts: Sequence[Rollout], device: torch.device) -> Tensor:
    """[B, R] the logprobs that came with the rollouts."""
    given = [rollout.logprobs for rollout in rollouts if rollout.logprobs is not None]
    if len(given) < len(rollouts):
        raise UserError(
            "old_logprobs 'sampled' needs an engine that gives the logprobs that it samples with (hf, vllm); take one, or "
            "old_logprobs 'recompute'"
        )
    return pad_sequence(given, batch_first=True).float().to(device)
