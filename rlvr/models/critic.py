"""`Critic`: a decoder with a scalar head; the value of each state before the action taken there.

In a training step it runs twice: under `torch.no_grad` for the old values that advantages are made of (`rlvr.experience`),
and with gradients for the value loss (`rlvr.trainer.ppo_update`).
"""

from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlvr.errors import UserError
from rlvr.models.backbone import hidden_states
from rlvr.models.batch import SequenceBatch
from rlvr.models.loading import load_backbone
from rlvr.models.reward_model import RewardModel
from rlvr.models.role import Role
from rlvr.models.value_head import HEAD_FILE, CriticOutput, ValueHead, has_head


class Critic(Role):
    """A transformers decoder (without language-model head) and a linear value head.

    Args:
        backbone: the decoder.
        seed: of the head's weights, which start so small that values start near 0.
    """

    def __init__(self, backbone: PreTrainedModel, seed: int = 0) -> None:
        super().__init__()
        self.backbone = backbone
        self.value_head = ValueHead(backbone.config.get_text_config().hidden_size, seed)
        self._try_padding_free()

    @property
    def pretrained(self) -> PreTrainedModel:
        return self.backbone

    def forward(self, batch: SequenceBatch) -> CriticOutput:
        """Values before each response token and after the last one."""
        return self.read(hidden_states(self.backbone, batch, self.packs), batch)

    def read(self, hidden: Tensor, batch: SequenceBatch) -> CriticOutput:
        """`forward` from the decoder's [B, T, H] states on."""
        return self.value_head.read(hidden, batch)

    def _save_extras(self, folder: Path) -> None:
        self.value_head.save(folder)

    def _load_extras(self, folder: Path) -> None:
        self.value_head.load(folder)

    @staticmethod
    def saved_state(folder: str | Path) -> dict[str, Tensor]:
        """The state dict of what `save_pretrained` wrote.

        Raises:
            UserError: the folder holds no critic.
        """
        return Critic.from_pretrained(folder).state_dict()

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> "Critic":
        """Read what `save_pretrained` wrote, or begin from a reward model (Ouyang et al. 2022): its decoder, with values
        that are the score that it would give each prefix.

        Raises:
            UserError: the folder holds neither a value head nor a reward model.
        """
        if has_head(folder):
            critic = cls(load_backbone(str(folder)))
            critic.value_head.load(folder)
            return critic
        try:
            reward_model = RewardModel.from_pretrained(folder)
        except UserError as error:
            raise UserError(
                f"{folder} holds no critic: {HEAD_FILE} is missing, and it is no reward model either ({error}) Give a run's "
                "critic/modeling folder, or a reward model's"
            ) from None
        return cls.from_reward_model(reward_model)

    @classmethod
    def from_reward_model(cls, reward_model: RewardModel) -> "Critic":
        """The reward model's decoder, and its head as the value head; the decoder is the same object."""
        critic = cls(reward_model.decoder)
        with torch.no_grad():
            critic.value_head.weight.copy_(reward_model.head.weight)
            if reward_model.head.bias is not None:
                critic.value_head.bias.copy_(reward_model.head.bias)
        return critic
