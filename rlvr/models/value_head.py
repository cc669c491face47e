"""`ValueHead`: one number for each state, read off a decoder's hidden states. For the critic, or on the actor's own trunk."""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlvr.core.masked import at_least_float32
from rlvr.errors import UserError
from rlvr.models.backbone import at_last_tokens, at_responses, scatter_responses
from rlvr.models.batch import SequenceBatch

HEAD_FILE = "value_head.safetensors"


class CriticOutput(NamedTuple):
    """Values in the reward's unit, float32 (float64 of a float64 model); with gradients if the critic learns."""

    values: Tensor
    """[B, R] V(s_t), the state before response token t; zero where there is no token."""
    last_values: Tensor
    """[B] the value after the last token, for responses that go on beyond it."""


class ValueHead(nn.Linear):
    """A linear head, saved as a file beside the model that it belongs to.

    Args:
        size: of the hidden states.
        seed: of its weights, which start so small that values start near 0.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        super().__init__(size, 1)
        start_near_zero(self, seed)

    def read(self, hidden: Tensor, batch: SequenceBatch) -> CriticOutput:
        """Values before each response token and after the last one, from [B, T, H] hidden states."""
        values = scatter_responses(self._values(at_responses(hidden, batch)), batch)
        after = self._values(at_last_tokens(hidden, batch))
        return CriticOutput(values, after.clone())  # FSDP wants no views to come out of a forward pass

    def _values(self, hidden: Tensor) -> Tensor:
        # [..., H] to [...]. Cast to the head's type, which the decoder's states needn't have.
        return at_least_float32(self(hidden.to(self.weight.dtype)).squeeze(-1))

    def save(self, folder: str | Path) -> None:
        """Write it into the folder."""
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, Path(folder) / HEAD_FILE)

    def load(self, folder: str | Path) -> None:
        """Read what `save` wrote.

        Raises:
            UserError: the folder holds no value head, or one of another model.
        """
        check_head(folder)
        path = Path(folder) / HEAD_FILE
        try:
            found = load_file(path)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{path} can't be read: {error}") from None
        own = self.state_dict()
        if {name: tensor.shape for name, tensor in found.items()} != {name: own[name].shape for name in own}:
            raise UserError(f"{path} holds no value head for hidden states of {self.in_features} numbers")
        self.load_state_dict(found)


def start_near_zero(head: nn.Linear, seed: int) -> None:
    """Draw weights so small that the head's outputs start near 0; the bias is 0."""
    # A generator of its own, on the CPU: the same weights on every rank and device, and no draw from the run's random state.
    noise = torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        head.weight.copy_(noise / (head.in_features + 1))
        if head.bias is not None:
            head.bias.zero_()


def has_head(folder: str | Path) -> bool:
    """True if a value head lies in the folder."""
    return (Path(folder) / HEAD_FILE).is_file()


def check_head(folder: str | Path) -> None:
    """Raise `UserError` unless a value head lies in the folder."""
    if not has_head(folder):
        raise UserError(f"{folder} holds no critic: {HEAD_FILE} is missing; give a run's critic/modeling folder")
