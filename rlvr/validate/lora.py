"""LoRA's flags: the settings of the adapters that learn, and combinations of flags that are refused."""

from typing import TYPE_CHECKING

from rlvr.config.conditions import is_adapter
from rlvr.config.shared import StartConfig
from rlvr.errors import UserError

if TYPE_CHECKING:
    from rlvr.models.lora_config import LoraSettings


def lora_settings(model: StartConfig, continues: bool = True) -> "LoraSettings | None":
    """Settings of the adapter that learns: those given, or those of the adapter that the run starts from; None if all
    weights learn.

    Args:
        model: the section with the flags.
        continues: whether an adapter under `checkpoint_path` is trained further (and not merged, as in a reward model).

    Raises:
        UserError: a file that can't be used, settings that can't be trained with, flags without effect, or a missing package.
    """
    starts_from_adapter = continues and is_adapter(model.checkpoint_path)
    if not model.lora_config and not starts_from_adapter:
        if not model.lora_merge:
            raise UserError(
                "--no_lora_merge has no effect without --lora_config: there is nothing to merge; leave it out"
            )
        return None
    if model.lora_config and starts_from_adapter:
        raise UserError(
            f"--lora_config {model.lora_config} has no effect: --checkpoint_path {model.checkpoint_path} is an adapter with "
            "settings of its own; leave one of them out"
        )
    # Only where they are needed: these load torch.
    from rlvr.models.lora import adapter_settings
    from rlvr.models.lora_config import read_lora_config, refuse_dropout
    from rlvr.models.quantized import import_bitsandbytes

    if model.load_in_4bit:
        import_bitsandbytes()
    if starts_from_adapter:
        return adapter_settings(str(model.checkpoint_path))
    settings = read_lora_config(str(model.lora_config))
    refuse_dropout(settings, f"--lora_config {model.lora_config}")
    return settings
