"""Batches of other toolkits' loaders as our rows: dictionaries of padded tensors, as ColossalChat's collators make them.

    prompt_dataloader     {"input_ids": [B, P], "attention_mask": [B, P], "gt_answer": B texts or rows of token ids, ...}
    pretrain_dataloader   {"input_ids": [B, T], "attention_mask": [B, T], "labels": [B, T], -100 where nothing is learned}

Padding may be on either side. Further entries with B values are columns, which reward functions may ask for by name.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rlvr.data.examples import Example
from rlvr.data.problems import Problem
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IGNORED = -100
"""Label of a token that is not learned."""


def as_prompts(batch: Any, tokenizer: "PreTrainedTokenizerBase") -> Sequence[Prompt]:
    """A batch of prompts as our trainer takes it; one that is so already is returned as it is.

    Raises:
        UserError: it is neither, or its parts don't fit.
    """
    if isinstance(batch, Sequence) and all(isinstance(one, Prompt) for one in batch):
        return batch
    ids = _rows_of(batch, "prompt_dataloader", "a list of rlvr.data.prompts.Prompt (as PromptLoader does)")
    columns = _columns(batch, len(ids), "prompt_dataloader", without=("input_ids", "attention_mask", "labels"))
    answers = columns.pop("gt_answer", [None] * len(ids))
    return [
        Prompt(
            Problem(
                id=blake2b(repr(row).encode(), digest_size=8).hexdigest(),
                question=tokenizer.decode(row, skip_special_tokens=True),
                answer=_text(answer, tokenizer),
                columns={name: values[i] for name, values in columns.items()},
                source="prompt_dataloader",
            ),
            tuple(row),
        )
        for i, (row, answer) in enumerate(zip(ids, answers, strict=True))
    ]


def as_examples(batch: Any) -> Sequence[Example]:
    """A batch of the language-modelling loss; one that is ours already is returned as it is. Without labels all tokens are learned.

    Raises:
        UserError: it is neither, or its parts don't fit.
    """
    if isinstance(batch, Sequence) and all(isinstance(one, Example) for one in batch):
        return batch
    ids = _rows_of(batch, "pretrain_dataloader", "a list of rlvr.data.examples.Example (as SupervisedLoader does)")
    if "labels" not in batch:
        return [Example(tuple(row), 0) for row in ids]
    labels = _rows_of({**batch, "input_ids": batch["labels"]}, "pretrain_dataloader", "labels")
    return [_example(row, of_row) for row, of_row in zip(ids, labels, strict=True)]


def _example(ids: list[int], labels: list[int]) -> Example:
    if any(label not in (IGNORED, token) for label, token in zip(labels, ids, strict=True)):
        raise UserError(
            f"pretrain_dataloader: labels must be the tokens of input_ids, or {IGNORED}, at the same places (the shift by one is made here)"
        )
    spans: list[tuple[int, int]] = []
    for place, label in enumerate(labels):
        if label == IGNORED:
            start = spans.pop()[0] if spans and spans[-1][1] == place else place
            spans.append((start, place + 1))
    prompt = spans.pop(0)[1] if spans and spans[0][0] == 0 else 0
    return Example(tuple(ids), prompt, tuple(spans))


def _rows_of(batch: Any, where: str, ours: str) -> list[list[int]]:
    """The token ids of each row, without padding."""
    if not isinstance(batch, Mapping) or not isinstance(batch.get("input_ids"), Tensor):
        got = f"a dictionary of {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else type(batch).__name__
        raise UserError(
            f"{where} must yield {ours}, or a dictionary with input_ids and attention_mask as tensors [B, T] (as ColossalChat's do), "
            f"not {got}"
        )
    ids = batch["input_ids"]
    mask = batch.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    if ids.dim() != 2 or mask.shape != ids.shape:
        raise UserError(
            f"{where}: input_ids and attention_mask must be [B, T], both; they are {list(ids.shape)} and {list(mask.shape)}"
        )
    return [row[kept].tolist() for row, kept in zip(ids, mask.bool(), strict=True)]


def _columns(batch: Mapping[str, Any], rows: int, where: str, without: Sequence[str]) -> dict[str, Any]:
    columns = {name: values for name, values in batch.items() if name not in without}
    for name, values in columns.items():
        if not hasattr(values, "__len__") or isinstance(values, str) or len(values) != rows:
            raise UserError(f"{where}: {name!r} must hold a value for each of the {rows} rows")
    return columns


def _text(answer: Any, tokenizer: "PreTrainedTokenizerBase") -> str | None:
    """A right answer as text: ColossalChat hands on its token ids."""
    if isinstance(answer, Tensor):
        answer = answer.reshape(-1).tolist()
    if answer is None or isinstance(answer, str):
        return answer
    if isinstance(answer, Sequence) and all(isinstance(token, int) for token in answer):
        return str(tokenizer.decode(list(answer), skip_special_tokens=True)).strip()
    if isinstance(answer, int | float):
        return str(answer)
    raise UserError(f"prompt_dataloader: gt_answer must hold texts or token ids, not {type(answer).__name__}")
