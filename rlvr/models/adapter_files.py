"""Models and adapters on disk: whole models as `from_pretrained` reads them, adapters as peft's `PeftModel` does."""

import json
from copy import copy
from dataclasses import asdict, replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from rlvr.errors import UserError
from rlvr.models.adapter import is_adapter, read_adapter_config
from rlvr.models.lora import ADAPTER, apply_lora, base_of, has_adapter, keep_start, merged_copy
from rlvr.models.lora_settings import LoraSettings, parse_lora_settings

WEIGHTS = "adapter_model.safetensors"
BASE = "base.json"
_PREFIX = "base_model.model."


def save_model(model: PreTrainedModel, folder: str | Path) -> None:
    """Write a plain model; adapters are merged into it."""
    (merged_copy(model) if has_adapter(model) else model).save_pretrained(folder)


def save_adapter(model: PreTrainedModel, folder: str | Path) -> None:
    """Write the adapter alone (`PeftModel.from_pretrained(base, folder)` reads it), and which base it belongs to."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = copy(model.peft_config[ADAPTER])
    config.inference_mode = True
    config.save_pretrained(folder)
    tensors = {_PREFIX + name: tensor.contiguous().cpu() for name, tensor in _tensors(model).items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / BASE).write_text(json.dumps(asdict(base_of(model)), indent=1))


def load_adapter(model: PreTrainedModel, folder: str | Path) -> None:
    """Put the weights of a saved adapter into the model's own.

    Raises:
        UserError: it is damaged, belongs to another base model, or has other modules or sizes.
    """
    from peft import set_peft_model_state_dict

    folder = Path(folder)
    _check_base(model, folder)
    try:
        tensors = {name.removeprefix(_PREFIX): t for name, t in load_file(folder / WEIGHTS).items()}
    except (OSError, SafetensorError) as error:
        raise UserError(f"the adapter {folder} can't be read: {error}") from None
    own = _tensors(model)
    wrong = [n for n in sorted(own.keys() | tensors.keys()) if _shape(own.get(n)) != _shape(tensors.get(n))]
    if wrong:
        raise UserError(
            f"the adapter {folder} does not fit {type(model).__name__} with these LoRA settings: {', '.join(wrong[:3])}"
        )
    set_peft_model_state_dict(model, tensors, adapter_name=ADAPTER)


def _tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapter's tensors under peft's names, which leave out the adapter's own."""
    from peft import get_peft_model_state_dict

    return get_peft_model_state_dict(model, adapter_name=ADAPTER, save_embedding_layers=False)


def _shape(tensor: Tensor | None) -> torch.Size | None:
    return None if tensor is None else tensor.shape


def _check_base(model: PreTrainedModel, folder: Path) -> None:
    """Adapters that others wrote don't say to which weights they belong, and are believed."""
    path, base = folder / BASE, base_of(model)
    if path.is_file() and (saved := json.loads(path.read_text())) != asdict(base):
        if saved["fingerprint"] != base.fingerprint:
            raise UserError(
                f"the adapter {folder} was trained on another base model ({saved['name']}) than {base.name}: give that one "
                "as --pretrain"
            )


def adapter_settings(folder: str | Path) -> LoraSettings:
    """The settings of a saved adapter. Its dropout is left behind: a policy is trained without.

    Raises:
        UserError: it is no LoRA adapter, or one that can't be trained here.
    """
    return replace(parse_lora_settings(read_adapter_config(folder), f"the adapter {folder}"), lora_dropout=0.0)


def continue_adapter(model: PreTrainedModel, folder: str | Path) -> PreTrainedModel:
    """Put a saved adapter into the model, to be trained further; `adapter_off` then goes back to this one.

    Raises:
        UserError: it does not fit the model.
    """
    apply_lora(model, adapter_settings(folder))
    load_adapter(model, folder)
    keep_start(model)
    return model


def start_adapter(
    model: PreTrainedModel, settings: LoraSettings | None, start: str | None, seed: int
) -> PreTrainedModel:
    """Put in the adapter that a run starts from, if `start` is one, or a new one, if there are settings.

    Raises:
        UserError: it does not fit the model.
    """
    if start is not None and is_adapter(start):
        return continue_adapter(model, start)
    return model if settings is None else apply_lora(model, settings, seed)
