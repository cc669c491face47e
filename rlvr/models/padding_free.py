"""Padding-free forward passes: the rows of a batch run back to back as one sequence, apart only in attention.

All that a decoder does to single tokens (projections, norms, MLPs: nearly all of its arithmetic at the lengths of
reasoning on small machines) then costs nothing for padding. Attention lays the tokens out as padded rows again, and runs
the kernel that the model has anyway. This hooks into transformers' attention interface, so it works for every model that
uses that interface; `can_run_padding_free` finds out by trying.

Left out on purpose: kernels for variable lengths (FlashAttention's), which need a GPU and a package of their own. Rows
that several training examples share are another matter: `rlvr.models.packing`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.models.batch import SequenceBatch, collate

NAME = "rlvr_padding_free"
WORTH_IT = 0.95
"""Share of real tokens in a padded batch from which on leaving padding out would not gain what it costs."""


def padding_free_hidden_states(backbone: nn.Module, batch: SequenceBatch) -> Tensor:
    """[B, T, H] the decoder's last hidden states of a right-padded batch, computed without padding; 0 on padding."""
    real = batch.attention_mask.bool()
    places = real.flatten().nonzero().squeeze(1)  # [N]
    rows = torch.zeros_like(batch.input_ids).masked_scatter(real, torch.arange(len(places), device=places.device))
    with _installed(backbone, _Layout(rows, places)):
        hidden = backbone(
            input_ids=batch.input_ids[real][None], position_ids=batch.position_ids[real][None], use_cache=False
        ).last_hidden_state[0]  # [N, H]
    flat = hidden.new_zeros(real.numel(), hidden.size(1)).index_copy(0, places, hidden)  # [B * T, H]
    return flat.view(*real.shape, -1)


def has_much_padding(batch: SequenceBatch) -> bool:
    """True for a batch with enough padding to be worth it. The number of tokens is known without waiting for the device."""
    return batch.right_padded and not batch.shared_rows and batch.tokens < WORTH_IT * batch.input_ids.numel()


def recomputes_activations(backbone: nn.Module) -> bool:
    """True under gradient checkpointing, whose backward pass would run attention again when the layout below is gone."""
    new = getattr(backbone, "is_activation_checkpointing", None)  # transformers renamed it
    return bool(getattr(backbone, "is_gradient_checkpointing", False) if new is None else new)


@torch.no_grad()
def can_run_padding_free(backbone: nn.Module) -> bool:
    """True if the decoder gives the same states without padding as with it, tried on nine tokens in three rows.

    Never with sliding windows or chunked attention (a batch as short as this would not show the difference), nor with
    another kernel than PyTorch's own.
    """
    config: Any = backbone.config.get_text_config()  # type: ignore[union-attr, operator]
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    if config._attn_implementation != "sdpa" or layers != {"full_attention"} or _has_window(config):
        return False
    device = next(backbone.parameters()).device
    ids = torch.arange(9) % config.vocab_size
    batch = collate([ids[:1], ids[1:2], ids[4:5]], [ids[:0], ids[2:4], ids[5:]]).to(device)
    was_training = backbone.training
    backbone.eval()
    try:
        padded = backbone(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        padding_free = padding_free_hidden_states(backbone, batch)
    except TypeError:  # a model without position ids
        return False
    finally:
        backbone.train(was_training)
    real = batch.attention_mask.bool()
    return bool(torch.allclose(padded[real], padding_free[real], atol=1e-2, rtol=1e-3))


def _has_window(config: Any) -> bool:
    uses = getattr(config, "use_sliding_window", True)  # Qwen2 names a window that it does not use
    return bool(uses and getattr(config, "sliding_window", None)) or bool(getattr(config, "attention_chunk_size", None))


class _Layout(NamedTuple):
    """N tokens that run back to back, as B padded rows of T: `rows` [B, T] are places among the N (0 on padding), `places`
    [N] are places in the flattened rows."""

    rows: Tensor
    places: Tensor


# Attention functions get no arguments of ours through a transformers model, so the layout is handed to them here.
_layout: ContextVar[_Layout] = ContextVar("layout of the batch that runs without padding")


@contextmanager
def _installed(backbone: nn.Module, layout: _Layout) -> Iterator[None]:
    """The decoder attends by `_attention`, over this layout."""
    config: Any = backbone.config.get_text_config()  # type: ignore[union-attr, operator]
    before = config._attn_implementation
    token = _layout.set(layout)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _layout.reset(token)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Causal attention within each row: [1, heads, N, D] queries, keys and values to [1, N, heads, D]."""
    rows, places = _layout.get()
    padded = [x[0].transpose(0, 1)[rows].transpose(1, 2) for x in (query, key, value)]  # [B, heads, T, D]
    # Rows are right-padded, so causality alone keeps their tokens from padding; the mask that the model made spans the
    # N tokens of all rows, and would be wrong here.
    kwargs["is_causal"] = True
    out, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](module, *padded, None, **kwargs)  # [B, T, heads, D]
    return out.flatten(0, 1)[places][None], None


ALL_ATTENTION_FUNCTIONS[NAME] = _attention
