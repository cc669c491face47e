"""TRL's functions on padded batches: `generate`, `batch_generation`, `forward`; `truncate_response` is in `rlvr.core.masked`.

The trainer itself uses none of them: it keeps responses ragged (`rlvr.rollout`) and never holds [B, R, V] (`Actor`). They
are here for code that was written for TRL. TRL tells padding by comparing ids with the pad token, and so loses end tokens
where one token is both; here `lengths` says what is a token. Without it, runs of the pad token at a row's ends are padding.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import GenerationConfig, PreTrainedModel

from rlvr.rollout.decode import inference


def forward(
    model: PreTrainedModel,
    query_responses: Tensor,
    pad_token_id: int,
    lengths: Tensor | None = None,
    left_padding: Tensor | None = None,
) -> Any:
    """The model's output on padded rows, with a mask and with position ids that count tokens only.

    Args:
        model: a transformers model; BLOOM and its like, which take no position ids, get none.
        query_responses: [B, T] token ids with padding on either side or both.
        pad_token_id: what stands in padding.
        lengths: [B] tokens of each row. Without it, a row's tokens go from its first id that is not `pad_token_id` to its
            last such one; an end token that is also the pad token then counts as padding, which changes no other token.
        left_padding: [B] columns before each row's first token; 0 by default. Needs `lengths`.

    Returns:
        The model's `ModelOutput` with all hidden states; what it holds at padding means nothing.

    Raises:
        ValueError: a row without tokens, lengths that don't fit, or `left_padding` without `lengths`.
    """
    mask = _token_mask(query_responses, pad_token_id, lengths, left_padding)
    inputs: dict[str, Any] = {
        "input_ids": query_responses.masked_fill(~mask, 0),
        "attention_mask": mask.long(),
        "return_dict": True,
        "output_hidden_states": True,
    }
    if "position_ids" in inspect.signature(model.forward).parameters:
        inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp(min=0)
    return model(**inputs)


def generate(
    lm_backbone: PreTrainedModel,
    queries: Tensor,
    pad_token_id: int,
    generation_config: GenerationConfig,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Continue left-padded queries; padding changes nothing.

    Of the model's own generation settings only its special tokens count: a top-k or a repetition penalty that comes with a
    model would silently sample from another distribution than the one asked for.

    Args:
        lm_backbone: a transformers causal LM.
        queries: [B, Q] token ids, padded on the left.
        pad_token_id: what stands in padding, and after the end of a response.
        generation_config: how to sample.
        lengths: [B] tokens of each query. Without it, the run of `pad_token_id` that a row begins with is padding.

    Returns:
        `(query_responses, logits)`: [B, Q + R] the queries as given with their responses, and [B, R, V] what each token was
        drawn from, in float32: divided by the temperature, and -infinity where top-k or top-p have cut.

    Raises:
        ValueError: a query without tokens, or lengths that don't fit.
    """
    left = queries.size(1) - lengths if lengths is not None else None
    if lengths is None:
        mask = (queries != pad_token_id).long().cumsum(1) > 0
        _refuse_empty(mask)
    else:
        mask = _token_mask(queries, pad_token_id, lengths, left)
    with _own_settings_hidden(lm_backbone, pad_token_id), inference(lm_backbone):
        out = lm_backbone.generate(
            input_ids=queries.masked_fill(~mask, 0),
            attention_mask=mask.long(),
            generation_config=generation_config,
            return_dict_in_generate=True,
            output_scores=True,
        )
    logits = torch.stack(out.scores, dim=1).float()
    return torch.cat([queries, out.sequences[:, queries.size(1) :]], dim=1), logits


def batch_generation(
    model: PreTrainedModel,
    queries: Tensor,
    batch_size: int | None = None,
    pad_token_id: int | None = None,
    generation_config: GenerationConfig | None = None,
    lengths: Tensor | None = None,
    *,
    local_rollout_forward_batch_size: int | None = None,
) -> tuple[Tensor, Tensor]:
    """`generate` for `batch_size` queries at a time (TRL's code calls it `local_rollout_forward_batch_size`, its documentation
    `batch_size`). `pad_token_id` and `generation_config` must be given.

    Responses of a part that ended sooner than others are padded on the right with `pad_token_id`, their logits with 0.
    """
    size = local_rollout_forward_batch_size if batch_size is None else batch_size
    if size is None or pad_token_id is None or generation_config is None:
        raise TypeError("batch_generation() needs batch_size, pad_token_id and generation_config")
    if size < 1:
        raise ValueError(f"batch_size (local_rollout_forward_batch_size) {size}: must be at least 1 query at a time")
    parts = [
        generate(
            model,
            queries[rows],
            pad_token_id,
            generation_config,
            None if lengths is None else lengths[rows],
        )
        for rows in _slices(len(queries), size)
    ]
    columns = max(logits.size(1) for _, logits in parts)
    short = [columns - logits.size(1) for _, logits in parts]
    ids = [pad(ids, (0, missing), value=pad_token_id) for (ids, _), missing in zip(parts, short, strict=True)]
    logits = [pad(logits, (0, 0, 0, missing)) for (_, logits), missing in zip(parts, short, strict=True)]
    return torch.cat(ids), torch.cat(logits)


def _slices(size: int, step: int) -> Iterator[slice]:
    for start in range(0, size, step):
        yield slice(start, start + step)


def _token_mask(ids: Tensor, pad_id: int, lengths: Tensor | None, left_padding: Tensor | None) -> Tensor:
    """[B, T] true on tokens."""
    if lengths is None:
        if left_padding is not None:
            raise ValueError("left_padding says where tokens begin; give lengths too, which says where they end")
        real = (ids != pad_id).long()
        mask = (real.cumsum(1) > 0) & (real.flip(1).cumsum(1).flip(1) > 0)
        _refuse_empty(mask)
        return mask
    start = torch.zeros_like(lengths) if left_padding is None else left_padding
    if len(lengths) != len(ids) or bool(((lengths < 1) | (start < 0) | (start + lengths > ids.size(1))).any()):
        raise ValueError(
            f"lengths {lengths.tolist()} after {start.tolist()} columns of padding don't fit {len(ids)} rows of {ids.size(1)} columns"
        )
    columns = torch.arange(ids.size(1), device=ids.device)
    return (columns >= start[:, None]) & (columns < (start + lengths)[:, None])


def _refuse_empty(mask: Tensor) -> None:
    if not bool(mask.any(dim=1).all()):
        raise ValueError("a row holds nothing but the pad token: leave it out, or say with lengths what is a token")


@contextmanager
def _own_settings_hidden(model: PreTrainedModel, pad_id: int) -> Iterator[None]:
    saved: Any = model.generation_config
    model.generation_config = GenerationConfig(
        bos_token_id=saved.bos_token_id, eos_token_id=saved.eos_token_id, pad_token_id=pad_id
    )
    try:
        yield
    finally:
        model.generation_config = saved
