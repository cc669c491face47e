"""LoRA adapters of peft that lie in a folder of their own: what they are for, and merging them into a model.

Light to import: settings are checked with it.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER_CONFIG = "adapter_config.json"


def is_adapter(folder: str | Path | None) -> bool:
    """Whether the folder holds an adapter of peft rather than whole weights."""
    return folder is not None and (Path(folder) / ADAPTER_CONFIG).is_file()


def read_adapter_config(folder: str | Path) -> dict[str, Any]:
    """What peft wrote of the adapter.

    Raises:
        UserError: it is no JSON object.
    """
    path = Path(folder) / ADAPTER_CONFIG
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise UserError(f"{path} is not what peft writes: no JSON object")
    return found


def merge_adapter(model: "PreTrainedModel", folder: str | Path) -> "PreTrainedModel":
    """`model` with the adapter's weights merged into its own.

    Raises:
        UserError: peft is not installed, or the adapter does not fit the model.
    """
    try:
        from peft import PeftModel
    except ImportError:
        raise UserError(f"{folder} is a LoRA adapter, which needs the package peft: pip install peft") from None
    try:
        merged: Any = PeftModel.from_pretrained(model, str(folder))
    except (RuntimeError, ValueError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"the adapter {folder} does not fit {model.config.name_or_path}: {reason}") from None
    return merged.merge_and_unload()
