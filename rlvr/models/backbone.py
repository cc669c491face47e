"""A transformers decoder on a `SequenceBatch`: its hidden states, and the places of them that heads read.

Every forward pass of actor, critic and reward model goes through here, in scoring and in learning alike.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from packaging.version import Version
from torch import Tensor, nn

from rlvr.errors import UserError, listed
from rlvr.models.batch import SequenceBatch
from rlvr.models.lean_layers import make_lean
from rlvr.models.padding_free import is_worth_it, padding_free_hidden_states

# transformers renamed the argument of `from_pretrained`, and before the new name was known it was silently dropped.
DTYPE_ARGUMENT = "dtype" if Version(transformers.__version__) >= Version("4.56") else "torch_dtype"


def hidden_states(backbone: nn.Module, batch: SequenceBatch, packs: bool = False) -> Tensor:
    """[B, T, H] the decoder's last hidden states; undefined on padding, which nothing reads.

    `packs` says that the decoder can run the rows back to back (`rlvr.models.padding_free`), which is done where
    enough padding and equal beginnings are saved.
    """
    if packs and is_worth_it(batch):
        return padding_free_hidden_states(backbone, batch)
    return backbone(**model_inputs(backbone, batch), use_cache=False).last_hidden_state


def model_inputs(model: nn.Module, batch: SequenceBatch) -> dict[str, Tensor]:
    """Keyword arguments of a transformers model's forward for this batch.

    Right-padded batches go without an attention mask, because tokens never see what comes after them, and without
    position ids, because the default is right on all tokens: attention kernels are faster so, and transformers would
    take positions that start again on padding for several sequences, and make a mask. What the model computes at padding
    is never looked at. Else position ids go to models that take them (ALiBi models don't).
    """
    inputs = {"input_ids": batch.input_ids}
    if batch.shared_rows:  # positions that start again are then what is meant
        return inputs | {"position_ids": batch.position_ids}
    if batch.right_padded:
        return inputs
    inputs["attention_mask"] = batch.attention_mask
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = batch.position_ids
    return inputs


def at_responses(hidden: Tensor, batch: SequenceBatch) -> Tensor:
    """[N, H] states from which the N response tokens are predicted: the ones a place before each token (pitfall A1)."""
    rows, steps = batch.response_mask.nonzero(as_tuple=True)
    # [B, R] places are first reduced to the N real ones, so that nothing is computed for padding in the response.
    return hidden[rows, batch.response_index[rows, steps] - 1]


def at_last_tokens(hidden: Tensor, batch: SequenceBatch) -> Tensor:
    """[B, H] states at each row's last token, on whichever side the padding is."""
    last = batch.attention_mask.size(1) - 1 - batch.attention_mask.flip(1).argmax(1)
    return hidden[torch.arange(len(last), device=hidden.device), last]


def scatter_responses(values: Tensor, batch: SequenceBatch) -> Tensor:
    """[B, R] from the [N] values of the response tokens, zero elsewhere."""
    out = values.new_zeros(batch.response_mask.shape)
    return out.masked_scatter(batch.response_mask, values)


def check_whole(info: Mapping[str, Any], name: str) -> None:
    """Look at what `from_pretrained(..., output_loading_info=True)` says of a model.

    Raises:
        UserError: weights are missing from its files, for which transformers drew random ones.
    """
    if missing := sorted(info["missing_keys"]):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise UserError(
            f"the model {name!r} is not whole: its files hold no {listed(missing[:3])}{more}. Save it again, or give another"
        )


def disable_dropout(model: nn.Module) -> None:
    """Set every dropout probability to 0: `nn.Dropout`, and the numbers that models hand to functional dropout.

    Ratios would compare different networks otherwise (pitfall A17). Gradient checkpointing needs the train mode, so
    the eval mode alone does not do.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)


def prepare(model: Any, grad_checkpoint: bool) -> Any:
    """Dropout off, lean layers, gradient checkpointing on if asked. Returns the model."""
    disable_dropout(model)
    make_lean(model)
    if grad_checkpoint:
        # Not reentrant: the reentrant kind gives no gradients where no input needs one, as under LoRA.
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        return model.train()
    return model.eval()
