"""`Critic`: a decoder with a scalar head; the value of each state before the action taken there."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from rlvr.errors import UserError
from rlvr.models.backbone import at_responses, hidden_states, scatter_responses
from rlvr.models.batch import SequenceBatch
from rlvr.models.packed import can_pack, computes_again

if TYPE_CHECKING:
    from rlvr.models.reward_model import RewardModel

HEAD_FILE = "value_head.safetensors"


class CriticOutput(NamedTuple):
    """Values in the reward's unit, float32."""

    values: Tensor
    """[B, R] V(s_t), the state before response token t; zero where there is no token."""
    last_values: Tensor
    """[B] the value after the last token, for responses that go on beyond it."""


class Critic(nn.Module):
    """A transformers decoder (without language-model head) and a linear value head.

    Args:
        backbone: the decoder.
        seed: of the head's weights, which start so small that values start near 0.
    """

    def __init__(self, backbone: PreTrainedModel, seed: int = 0) -> None:
        super().__init__()
        self.backbone = backbone
        size = backbone.config.get_text_config().hidden_size
        self.value_head = nn.Linear(size, 1)
        self._can_pack = can_pack(backbone)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.value_head.weight.copy_(torch.randn(1, size, generator=generator) / (size + 1))
            self.value_head.bias.zero_()

    @property
    def packs(self) -> bool:
        """Whether batches run without padding."""
        return self._can_pack and not computes_again(self.backbone)

    def forward(self, batch: SequenceBatch) -> CriticOutput:
        """Values before each response token and after the last one."""
        hidden = hidden_states(self.backbone, batch, self.packs)
        values = scatter_responses(self._head(at_responses(hidden, batch)), batch)
        lengths = batch.attention_mask.sum(1)
        last = batch.attention_mask.size(1) - 1 - batch.attention_mask.flip(1).argmax(1)
        after = self._head(hidden[torch.arange(len(lengths), device=hidden.device), last])
        return CriticOutput(values, after)

    def _head(self, hidden: Tensor) -> Tensor:
        return self.value_head(hidden.to(self.value_head.weight.dtype)).squeeze(-1).float()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the decoder as transformers does (`AutoModel.from_pretrained` reads it) and the head beside it."""
        self.backbone.save_pretrained(folder)
        head = {name: tensor.contiguous() for name, tensor in self.value_head.state_dict().items()}
        save_file(head, Path(folder) / HEAD_FILE)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Critic":
        """Read what `save_pretrained` wrote, or begin from a reward model (Ouyang et al. 2022): its decoder, with values
        that are the score that it would give each prefix.

        Raises:
            UserError: the folder holds neither a value head nor a reward model.
        """
        from rlvr.models.loading import load_backbone

        head = Path(folder) / HEAD_FILE
        if not head.is_file():
            return cls._from_reward_model(folder)
        critic = cls(load_backbone(str(folder)))
        critic.value_head.load_state_dict(load_file(head))
        return critic

    @classmethod
    def _from_reward_model(cls, folder: str | Path) -> "Critic":
        from rlvr.models.reward_model import RewardModel

        try:
            reward_model = RewardModel.from_pretrained(folder)
        except UserError as error:
            raise UserError(
                f"{folder} holds no critic: {HEAD_FILE} is missing, and it is no reward model either ({error}) Give a run's "
                "critic/modeling folder, or a reward model's"
            ) from None
        return cls.from_reward_model(reward_model)

    @classmethod
    def from_reward_model(cls, reward_model: "RewardModel") -> "Critic":
        """The reward model's decoder, and its head as the value head; the decoder is the same object."""
        critic = cls(reward_model.backbone)
        with torch.no_grad():
            critic.value_head.weight.copy_(reward_model.head.weight)
            if reward_model.head.bias is not None:
                critic.value_head.bias.copy_(reward_model.head.bias)
        return critic
