"""Forward passes without gradients over ragged responses: logprobs, reference logprobs, values."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rlvr.boost.boosted import Boosted
from rlvr.models.batch import collate
from rlvr.models.frozen import Frozen
from rlvr.rollout.engine import Rollout


@dataclass(frozen=True)
class ModelScores:
    """Right-padded to the longest of all B responses, on the device.

    Attributes:
        logprobs, entropy, ref_logprobs, values: [B, R]; zero where there is no token. `ref_logprobs` is None without
            a reference model, `values` without a critic.
        last_values: [B] value after the last token; None without a critic.
        mask: [B, R] true on tokens.
    """

    logprobs: Tensor
    entropy: Tensor
    ref_logprobs: Tensor | None
    values: Tensor | None
    last_values: Tensor | None
    mask: Tensor


@torch.no_grad()
def score_rollouts(
    rollouts: Sequence[Rollout],
    actor: Boosted,
    critic: Boosted | None,
    reference: Frozen | None,
    *,
    temperature: float,
    batch_size: int,
    pad_id: int,
) -> ModelScores:
    """Run the models over all rollouts in batches of similar length; the order of the rollouts is kept.

    The actor runs here exactly as it will in learning, so that the first ratio is 1 (pitfall A16).
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

    for rows in _by_length(rollouts, batch_size):
        batch = collate(
            [rollouts[i].prompt_ids for i in rows], [rollouts[i].response_ids for i in rows], pad_id=pad_id
        ).to(device)
        policy = actor.forward(batch, temperature)
        keep("mask", rows, batch.response_mask)
        keep("logprobs", rows, policy.logprobs)
        keep("entropy", rows, policy.entropy)
        if critic is not None:
            value = critic.forward(batch)
            keep("values", rows, value.values)
            keep("last_values", rows, value.last_values)
        if reference is not None:
            keep("ref_logprobs", rows, reference.forward(batch, temperature).logprobs)
    without = {name: columns.pop(name, None) for name in ("ref_logprobs", "values", "last_values")}
    return ModelScores(**without, **columns)  # type: ignore[arg-type]


def _by_length(rollouts: Sequence[Rollout], batch_size: int) -> list[list[int]]:
    order = sorted(range(len(rollouts)), key=lambda i: len(rollouts[i].prompt_ids) + len(rollouts[i].response_ids))
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
