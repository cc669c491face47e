"""`RewardModel`: a transformers decoder with one score, read at the last token of each row.

Source: Ouyang et al., "InstructGPT", 2022. A row's last token is known by its length. transformers' own classifiers look
for it by the pad token, and read one token too early where the end token pads too.
"""

import copy
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from rlvr.config.files import read_json
from rlvr.errors import UserError
from rlvr.models.backbone import at_last_tokens, hidden_states
from rlvr.models.batch import SequenceBatch
from rlvr.models.loading import load_backbone, load_sequence_classifier, new_sequence_classifier
from rlvr.models.lora import apply_lora
from rlvr.models.lora_config import LoraSettings, is_adapter, merge_adapter, read_adapter_config
from rlvr.models.role import Role
from rlvr.models.value_head import start_near_zero

STATISTICS_FILE = "reward_statistics.json"


@dataclass(frozen=True)
class RewardStatistics:
    """Mean and standard deviation of a reward model's scores on data that it was measured on; for normalisation."""

    mean: float
    std: float


class RewardModel(Role):
    """Wraps a transformers sequence classifier with one label.

    Args:
        model: the classifier, whose `score` is a linear head on a decoder (Llama, Qwen2, GPT-2, OPT, BLOOM, ...).
        statistics: of its scores, where they were measured; they are saved beside the weights.

    Raises:
        UserError: more than one label, or a head that is not read at the last token.
    """

    def __init__(self, model: PreTrainedModel, statistics: RewardStatistics | None = None) -> None:
        super().__init__()
        labels = model.config.num_labels
        if labels != 1:
            raise UserError(
                f"a reward model has one label, and {_name(model)} has {labels}: give a sequence classifier that was trained "
                "with num_labels=1"
            )
        if not isinstance(getattr(model, "score", None), nn.Linear):
            raise UserError(
                f"{_name(model)} has no linear `score` on a decoder's last token: give a reward model on a decoder (Llama, "
                "Qwen2, GPT-2, OPT, BLOOM, ...)"
            )
        self.model = model
        self.statistics = statistics
        self._try_padding_free()

    @property
    def pretrained(self) -> PreTrainedModel:
        return self.model

    @property
    def head(self) -> nn.Linear:
        """The linear map from the last token's hidden state to the score."""
        head: Any = self.model.score
        return head

    def forward(self, batch: SequenceBatch) -> Tensor:
        """[B] float32 score of each row, prompt and response, whatever the padding."""
        state = at_last_tokens(hidden_states(self.decoder, batch, self.packs), batch)
        return self.head(state.to(self.head.weight.dtype)).squeeze(-1).float()

    def add_adapter(self, settings: LoraSettings, seed: int = 0) -> None:
        """Put a LoRA adapter into the decoder; it and the head are what learns.

        Raises:
            UserError: a target matches nothing.
        """
        whole = sorted({*(settings.modules_to_save or []), "score"})
        apply_lora(self.model, replace(settings, modules_to_save=whole), seed)

    def _save_extras(self, folder: Path) -> None:
        if self.statistics is not None:
            (folder / STATISTICS_FILE).write_text(json.dumps(asdict(self.statistics), indent=1))

    @staticmethod
    def saved_state(folder: str | Path) -> dict[str, Tensor]:
        """The state dict of what `save_pretrained` wrote.

        Raises:
            UserError: the folder holds no reward model.
        """
        return RewardModel.from_pretrained(folder).state_dict()

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        base: str | None = None,
        flash_attention: bool = False,
        trust_remote_code: bool = False,
    ) -> "RewardModel":
        """Read a trained reward model, ours or another's: a folder or hub name, or a folder with a LoRA adapter.

        Args:
            base: the decoder under an adapter; by default the one that the adapter names.

        Raises:
            UserError: it can't be loaded, has more than one label, or its score head holds no trained weights.
        """
        if is_adapter(name):
            return cls._from_adapter(Path(name), base, trust_remote_code)
        model = load_sequence_classifier(
            str(name), flash_attention=flash_attention, trust_remote_code=trust_remote_code
        )
        return cls(model, _read_statistics(Path(name)))

    @classmethod
    def _from_adapter(cls, folder: Path, base: str | None, trust_remote_code: bool) -> "RewardModel":
        config = read_adapter_config(folder)
        if "score" not in (config.get("modules_to_save") or []):
            raise UserError(
                f"the adapter {folder} holds no trained score head: train it with 'score' among peft's modules_to_save "
                "(task_type SEQ_CLS does that)"
            )
        base = base or config.get("base_model_name_or_path")
        if not base:
            raise UserError(f"the adapter {folder} does not say what it adapts: give its base with --rm_pretrain")
        untrained = cls.from_base(base, trust_remote_code=trust_remote_code)
        return cls(merge_adapter(untrained.model, folder), _read_statistics(folder))

    @classmethod
    def from_base(
        cls, name: str, *, seed: int = 0, pad_id: int | None = None, trust_remote_code: bool = False
    ) -> "RewardModel":
        """An untrained reward model on the decoder `name` (named as `--pretrain`), its head drawn from `seed`.

        `pad_id` goes into the configuration for transformers' own batched scoring. A pad token that is the end token does
        not: transformers would score the token before the end; without it, it refuses batches and is right on single rows.
        """
        backbone = load_backbone(name, trust_remote_code)
        config = copy.deepcopy(backbone.config)
        config.num_labels = 1
        ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
        pad_id = config.pad_token_id if pad_id is None else pad_id
        config.pad_token_id = None if pad_id in ends else pad_id
        reward_model = cls(new_sequence_classifier(config, trust_remote_code))
        reward_model.decoder.load_state_dict(backbone.state_dict())
        start_near_zero(reward_model.head, seed)
        return reward_model


def _name(model: PreTrainedModel) -> str:
    return f"{model.config.name_or_path or 'the model'} ({type(model).__name__})"


def _read_statistics(folder: Path) -> RewardStatistics | None:
    path = folder / STATISTICS_FILE
    if not path.is_file():
        return None
    try:
        found = read_json(path)
        return RewardStatistics(mean=float(found["mean"]), std=float(found["std"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        raise UserError(f'{path} must look like {{"mean": 0.1, "std": 1.3}}; delete it to go without') from None
