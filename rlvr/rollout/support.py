"""How a model's forward is called when decoding, and whether it can decode with our cache at all."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlvr.rollout.cache import RoomyCache

ATTENTION = {"full_attention", "sliding_attention"}
"""Kinds of layers that keep keys and values and nothing else."""


@dataclass(frozen=True)
class Call:
    """What a model's forward takes.

    Attributes:
        position_ids: whether it takes them (ALiBi models don't).
        keep: its argument that limits logits to the last positions, if it has one.
    """

    position_ids: bool
    keep: str | None

    @classmethod
    def of(cls, model: PreTrainedModel) -> "Call":
        base = model.get_base_model() if hasattr(model, "get_base_model") else model  # an adapter takes anything
        names = inspect.signature(base.forward).parameters
        keep = next((name for name in ("logits_to_keep", "num_logits_to_keep") if name in names), None)
        return cls("position_ids" in names, keep)

    def __call__(
        self, model: PreTrainedModel, ids: Tensor, mask: Tensor | None, positions: Tensor, cache: RoomyCache
    ) -> Tensor:
        """Logits [B, V] after the last of the tokens [B, N], which the cache takes in.

        Args:
            mask: [B, T] over the cached and the new tokens; None if there is no padding.
            positions: [B, N] counted over each row's tokens.
        """
        inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": mask, "past_key_values": cache, "use_cache": True}
        if self.position_ids:
            inputs["position_ids"] = positions
        if self.keep:
            inputs[self.keep] = 1
        return model(**inputs).logits[:, -1]


def can_decode(model: PreTrainedModel) -> bool:
    """Whether the model decodes with our cache: it keeps keys and values and nothing else, and a trial agrees."""
    return _keeps_keys_and_values(model) and _trial_agrees(model)


def _keeps_keys_and_values(model: PreTrainedModel) -> bool:
    config = model.config.get_text_config()
    kinds: Sequence[str] = getattr(config, "layer_types", None) or ()
    supports = getattr(model, "_supports_default_dynamic_cache", lambda: True)
    return (
        set(kinds) <= ATTENTION
        and not getattr(model.config, "is_encoder_decoder", False)
        and not getattr(model, "_is_stateful", False)
        # Layers that read another layer's cache, and (before transformers 5) caches that mix kinds of layers.
        and not getattr(config, "num_kv_shared_layers", 0)
        and getattr(config, "cache_implementation", None) in (None, "dynamic")
        and bool(supports())
        and getattr(type(model), "_supports_cache_class", True)
    )


@torch.no_grad()
def _trial_agrees(model: PreTrainedModel) -> bool:
    """Two prompts of different length, swapped, then one more token: the same logits as without cache and padding?"""
    call = Call.of(model)
    device = next(model.parameters()).device
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]], device=device) % model.config.get_text_config().vocab_size
    mask = torch.tensor([[1, 1, 1], [0, 1, 1]], device=device)
    positions = torch.tensor([[0, 1, 2], [0, 0, 1]], device=device)
    cache = RoomyCache()
    call(model, ids, mask, positions, cache)
    if len(cache) == 0:  # the model has made a cache of its own
        return False
    order = torch.tensor([1, 0], device=device)
    cache.expand(order, 4)
    new = ids[:, :1]
    mask = torch.nn.functional.pad(mask[order], (0, 1), value=1)
    got = call(model, new, mask, positions[order, -1:] + 1, cache)
    whole = [torch.cat([ids[1, 1:], new[0]]), torch.cat([ids[0], new[1]])]
    expected = torch.stack([model(input_ids=row[None], use_cache=False).logits[0, -1] for row in whole])
    if not expected.isfinite().all():
        return True  # a model that has diverged, which `Decoder` reports
    scale = float(expected.float().std()) or 1.0
    return bool((got.float() - expected.float()).abs().max() < 0.05 * scale)
