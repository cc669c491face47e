"""Rows of a data set, as TRL's trainers take them, as the trainer's prompts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from rlvr.data.problem import Problem
from rlvr.data.prompts import Prompt
from rlvr.errors import UserError

TEXT_COLUMNS = ("prompt", "query", "text", "question")
ANSWER_COLUMNS = ("answer", "gold", "ground_truth", "solution")


def make_prompts(
    rows: Iterable[Mapping[str, Any]], tokenizer: PreTrainedTokenizerBase, what: str = "train_dataset"
) -> list[Prompt]:
    """Prompts from rows with `input_ids`, or with a `prompt` (or `query`, `text`, `question`): a text, which is taken as it
    stands, or chat messages, which go through the tokenizer's chat template.

    Token ids may be padded with `attention_mask` 0. A column `answer` (or `gold`, `ground_truth`, `solution`) is what reward
    functions get as the right answer, and all others they may ask for by name.

    Raises:
        UserError: no rows, a row without a prompt, or one of another kind; the message names the row.
    """
    prompts = [_make_prompt(row, index, tokenizer, what) for index, row in enumerate(rows)]
    if not prompts:
        raise UserError(f"{what} is empty: there is nothing to train on")
    return prompts


def _make_prompt(row: Mapping[str, Any], index: int, tokenizer: PreTrainedTokenizerBase, what: str) -> Prompt:
    place = f"{what}, row {index}"
    ids, text = _encode(row, place, tokenizer)
    if not ids:
        raise UserError(f"{place}: the prompt holds no token")
    answer = next((str(row[name]) for name in ANSWER_COLUMNS if row.get(name) is not None), None)
    columns = {name: value for name, value in row.items() if name not in ("input_ids", "attention_mask")}
    return Prompt(Problem(str(index), text, answer, columns, place), tuple(ids))


def _encode(row: Mapping[str, Any], place: str, tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], str]:
    if "input_ids" in row:
        ids = _ids(row, place)
        return ids, str(tokenizer.decode(ids, skip_special_tokens=True))
    name = next((name for name in TEXT_COLUMNS if name in row), None)
    if name is None:
        raise UserError(
            f"{place}: needs input_ids, or a prompt in one of the columns {', '.join(TEXT_COLUMNS)}; it has {', '.join(row)}"
        )
    prompt = row[name]
    if isinstance(prompt, str):
        return list(tokenizer.encode(prompt)), prompt
    if isinstance(prompt, Sequence) and prompt and all(isinstance(m, Mapping) and "content" in m for m in prompt):
        text = tokenizer.apply_chat_template(list(prompt), tokenize=False, add_generation_prompt=True)
        return list(tokenizer.encode(text, add_special_tokens=False)), str(prompt[-1]["content"])
    raise UserError(f"{place}: column {name!r} must hold text or chat messages, not {type(prompt).__name__}")


def _ids(row: Mapping[str, Any], place: str) -> list[int]:
    ids = row["input_ids"]
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if not all(isinstance(token, int) for token in ids):
        raise UserError(f"{place}: input_ids must be a list of token ids")
    mask = row.get("attention_mask")
    if mask is None:
        return ids
    mask = mask.tolist() if hasattr(mask, "tolist") else list(mask)
    if len(mask) != len(ids):
        raise UserError(f"{place}: attention_mask has {len(mask)} places for {len(ids)} input_ids")
    return [token for token, real in zip(ids, mask, strict=True) if real]
