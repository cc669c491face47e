"""`Experience`: all that learning needs of one response, without padding."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@dataclass(frozen=True)
class Experience:
    """One response. P prompt tokens, R response tokens (the stop token is one of them).

    Attributes:
        prompt_ids: [P] token ids.
        response_ids: [R] token ids.
        logprobs: [R] under the policy that sampled it.
        ref_logprobs: [R] under the initial model; equal to `logprobs` when no divergence is asked for.
        advantages: [R].
        mask: [R] true where the token is trained on; all false for a response that no reward function applied to.
        values: [R] V(s_t), before each token; None without a critic.
        returns: [R] the critic's targets, never whitened; None without a critic.
        importance: [R] truncated weight of each token, for an engine whose probabilities are not the trainer's; None = 1.
        positive: [R] true in a right response, for the language-modelling loss on those; None where nobody asks.
    """

    prompt_ids: Tensor
    response_ids: Tensor
    logprobs: Tensor
    ref_logprobs: Tensor
    advantages: Tensor
    mask: Tensor
    values: Tensor | None = None
    returns: Tensor | None = None
    importance: Tensor | None = None
    positive: Tensor | None = None

    def with_advantages(self, advantages: Tensor) -> "Experience":
        return replace(self, advantages=advantages)

    def to(self, device: torch.device | str) -> "Experience":
        return Experience(**{name: tensor.to(device) for name, tensor in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """The fields that there are."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


def pad(items: Sequence[Experience], name: str, device: torch.device) -> Tensor:
    """[B, R] the field `name` of each item, zero (false) beyond its end; R is the longest response, at least 1."""
    padded = pad_sequence([getattr(item, name) for item in items], batch_first=True)
    if padded.size(1) == 0:
        padded = padded.new_zeros(len(items), 1)
    return padded.to(device)


def split(padded: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """The rows of a [B, R] tensor without their padding, on the CPU."""
    rows = padded.detach().cpu()
    return [row[:length].clone() for row, length in zip(rows, lengths, strict=True)]
