"""`Role`: what actor, critic and reward model have in common."""

from abc import ABC, abstractmethod
from pathlib import Path

from torch import Tensor, nn
from transformers import PreTrainedModel

from rlvr.models import attention
from rlvr.models.adapter_files import load_adapter, save_adapter, save_model
from rlvr.models.lora import has_adapter
from rlvr.models.packed import can_pack, computes_again


class Role(nn.Module, ABC):
    """A module around one transformers model, so that any Booster plugin can wrap it in turn."""

    def __init__(self) -> None:
        super().__init__()
        attention.install()
        self._can_pack = False

    @property
    @abstractmethod
    def pretrained(self) -> PreTrainedModel:
        """The transformers model inside: it holds the adapters, and is what is saved."""

    @staticmethod
    @abstractmethod
    def saved_state(folder: str | Path) -> dict[str, Tensor]:
        """The state dict of what `save_pretrained` wrote.

        Raises:
            UserError: the folder holds no such role.
        """

    @property
    def decoder(self) -> PreTrainedModel:
        """It without its head."""
        return self.pretrained.base_model

    @property
    def packs(self) -> bool:
        """Whether batches run without padding."""
        return self._can_pack and not computes_again(self.decoder)

    @property
    def has_adapter(self) -> bool:
        """Whether only LoRA adapters and new heads learn."""
        return has_adapter(self.pretrained)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model as transformers does, adapters merged, and what else the role has beside it."""
        save_model(self.pretrained, folder)
        self._save_beside(Path(folder))

    def save_adapter(self, folder: str | Path) -> None:
        """Write the adapter alone, as peft does, and what else the role has beside it."""
        save_adapter(self.pretrained, folder)
        self._save_beside(Path(folder))

    def load_adapter(self, folder: str | Path) -> None:
        """Read what `save_adapter` wrote, into the adapter that there is.

        Raises:
            UserError: it does not fit, or what the role has beside it is missing.
        """
        load_adapter(self.pretrained, folder)
        self._load_beside(Path(folder))

    def stop_packing(self) -> None:
        """Run batches with their padding from now on."""
        self._can_pack = False

    def _find_packing(self) -> None:
        """Try out once whether the decoder runs rows back to back."""
        self._can_pack = can_pack(self.decoder)

    def _save_beside(self, folder: Path) -> None:
        """What the role has that is no part of the transformers model."""

    def _load_beside(self, folder: Path) -> None:
        """Read what `_save_beside` wrote, as far as it is needed."""
