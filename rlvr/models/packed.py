"""Forward passes without padding: the rows of a batch run back to back as one sequence, apart only in attention.

All that a decoder does to single tokens (projections, norms, MLPs: nearly all of its arithmetic at the lengths of
reasoning on small machines) then costs nothing for padding. Attention lays the tokens out as padded rows again, with
the kernel that the model has anyway. It hooks into transformers' attention interface, so it works for every model that
uses that interface; `can_pack` finds out by trying.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from rlvr.models.batch import SequenceBatch, collate

NAME = "rlvr_packed"
WORTH_IT = 0.95
"""Share of real tokens in a padded batch from which on packing would not gain what it costs."""


class _Layout(NamedTuple):
    """Of N packed tokens as B padded rows of T: `rows` [B, T] places in the packed sequence (0 on padding), `places` [N]
    places in the flattened rows."""

    rows: Tensor
    places: Tensor


_layout: ContextVar[_Layout] = ContextVar("layout of the packed sequence")


def packed_hidden_states(backbone: nn.Module, batch: SequenceBatch) -> Tensor:
    """[B, T, H] the decoder's last hidden states of a right-padded batch, computed without padding; 0 on padding."""
    real = batch.attention_mask.bool()
    places = real.flatten().nonzero().squeeze(1)
    rows = torch.zeros_like(batch.input_ids).masked_scatter(real, torch.arange(len(places), device=places.device))
    with _packed(backbone, _Layout(rows, places)):
        hidden = backbone(
            input_ids=batch.input_ids[real][None], position_ids=batch.position_ids[real][None], use_cache=False
        ).last_hidden_state[0]
    flat = hidden.new_zeros(real.numel(), hidden.size(1)).index_copy(0, places, hidden)
    return flat.view(*real.shape, -1)


def is_worth_packing(batch: SequenceBatch) -> bool:
    """Whether there is enough padding. The number of tokens is known without a look at the device."""
    return batch.right_padded and not batch.shared_rows and batch.tokens < WORTH_IT * batch.input_ids.numel()


def computes_again(backbone: nn.Module) -> bool:
    """Whether the backward pass computes activations again (gradient checkpointing): it would do so outside of the packed
    layout."""
    new = getattr(backbone, "is_activation_checkpointing", None)  # transformers renamed it
    return bool(getattr(backbone, "is_gradient_checkpointing", False) if new is None else new)


@torch.no_grad()
def can_pack(backbone: nn.Module) -> bool:
    """Whether the decoder gives the same states packed as padded, tried on nine tokens in three rows.

    Not with sliding windows or chunked attention (a batch as short as this would not show the difference), and not with
    another kernel than PyTorch's own.
    """
    config: Any = backbone.config.get_text_config()  # type: ignore[union-attr, operator]
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    if config._attn_implementation != "sdpa" or layers != {"full_attention"} or _window(config):
        return False
    device = next(backbone.parameters()).device
    ids = torch.arange(9) % config.vocab_size
    batch = collate([ids[:1], ids[1:2], ids[4:5]], [ids[:0], ids[2:4], ids[5:]]).to(device)
    was_training = backbone.training
    backbone.eval()
    try:
        plain = backbone(input_ids=batch.input_ids, use_cache=False).last_hidden_state
        packed = packed_hidden_states(backbone, batch)
    except TypeError:  # a model without position ids
        return False
    finally:
        backbone.train(was_training)
    real = batch.attention_mask.bool()
    return bool(torch.allclose(plain[real], packed[real], atol=1e-2, rtol=1e-3))


def _window(config: Any) -> bool:
    uses = getattr(config, "use_sliding_window", True)  # Qwen2 names a window that it does not use
    return bool(uses and getattr(config, "sliding_window", None)) or bool(getattr(config, "attention_chunk_size", None))


@contextmanager
def _packed(backbone: nn.Module, layout: _Layout) -> Iterator[None]:
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
    padded = [x[0].transpose(0, 1)[rows].transpose(1, 2) for x in (query, key, value)]
    kwargs["is_causal"] = True
    out, _ = ALL_ATTENTION_FUNCTIONS["sdpa"](module, *padded, None, **kwargs)
    return out.flatten(0, 1)[places][None], None


ALL_ATTENTION_FUNCTIONS[NAME] = _attention
