"""`Role`: the base class of actor, critic and reward model, which are modules around one transformers model.

It saves and loads them, whole or as adapters, and decides how their batches run. (The reference model is no role of its
own: `rlvr.boost.frozen`.)
"""

from abc import ABC, abstractmethod
from pathlib import Path

from torch import Tensor, nn
from transformers import PreTrainedModel

from rlvr.models import attention
from rlvr.models.lora import has_adapter, load_adapter, save_adapter, save_model
from rlvr.models.padding_free import can_run_padding_free, recomputes_activations


class Role(nn.Module, ABC):
    """A module around one transformers model, so that any Booster plugin can wrap it in turn."""

    def __init__(self) -> None:
        super().__init__()
        attention.install()  # before the trial of padding-free passes, which run through it
        self._padding_free = False

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
        """The transformers model without its head."""
        return self.pretrained.base_model

    @property
    def packs(self) -> bool:
        """True if batches run without padding."""
        return self._padding_free and not recomputes_activations(self.decoder)

    @property
    def has_adapter(self) -> bool:
        """True if only LoRA adapters and new heads learn."""
        return has_adapter(self.pretrained)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model as transformers does, adapters merged, and the role's own files (a value head's, say)."""
        save_model(self.pretrained, folder)
        self._save_extras(Path(folder))

    def save_adapter(self, folder: str | Path) -> None:
        """Write the adapter alone, as peft does, and the role's own files."""
        save_adapter(self.pretrained, folder)
        self._save_extras(Path(folder))

    def load_adapter(self, folder: str | Path) -> None:
        """Read what `save_adapter` wrote, into the adapter that there is.

        Raises:
            UserError: it does not fit, or a file of the role's own is missing.
        """
        load_adapter(self.pretrained, folder)
        self._load_extras(Path(folder))

    def keep_padding(self) -> None:
        """Run batches with their padding from now on."""
        self._padding_free = False

    def _try_padding_free(self) -> None:
        """Find out once, when the role is whole, if its decoder can run without padding."""
        self._padding_free = can_run_padding_free(self.decoder)

    def _save_extras(self, folder: Path) -> None:
        """Write what is no part of the transformers model. By default nothing."""

    def _load_extras(self, folder: Path) -> None:
        """Read what `_save_extras` wrote, as far as it is needed."""
