"""Supervised data for the ptx loss: JSONL or CSV rows as token ids with the length of the part that is not learned.

A row has one of these sets of columns, looked for in this order:

- `prompt` and `response`: texts as they are, with whatever turns and tags the data writes;
- `question` and `answer`: the question goes through the conversation template, the answer is the assistant's whole turn
  (with its tags, if it is to have any);
- `text`: learned from its first token to its last.

What ends the assistant's turn (or the tokenizer's end token) is put after every row that does not end so already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rlvr.data.readers import read_rows
from rlvr.data.rows import Row
from rlvr.data.sampling import Loader, PromptSampler
from rlvr.errors import UserError
from rlvr.suggest import listed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr.conversation import Conversation

_SHAPES = (("prompt", "response"), ("question", "answer"), ("text",))


@dataclass(frozen=True)
class Example:
    """One row.

    Attributes:
        ids: tokens of prompt and response.
        prompt_length: tokens of the prompt, which are not learned; 0 for plain text.
    """

    ids: tuple[int, ...]
    prompt_length: int


class SupervisedLoader(Loader[Example]):
    """Yields this process's share of each batch as a list of `Example`s, for ever; resumable as `PromptLoader` is.

    Args:
        sources: JSONL or CSV files, or folders of them.
        tokenizer: of the model.
        conversation: template for rows of `question` and `answer`; its end marker closes every response.
        batch_size: rows of one batch, over all processes.
        max_length: most tokens of a row; longer ones are cut on the right.

    Attributes:
        dropped: rows that are left without a token to learn.
        truncated: rows that were cut.

    Raises:
        UserError: data that can't be read, rows without the columns, nothing left to learn from, or a batch that does
            not divide among the processes.
    """

    def __init__(
        self,
        sources: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        *,
        batch_size: int,
        max_length: int,
        conversation: "Conversation | None" = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        rows = [row for source in sources for row in read_rows(source)]
        encoded = [_encode(row, tokenizer, conversation) for row in rows]
        kept = [Example(e.ids[:max_length], e.prompt_length) for e in encoded]
        examples = [
            e for e in kept if len(e.ids) > max(1, e.prompt_length)
        ]  # the first token of all has no predecessor
        if not examples:
            raise UserError(
                f"--ptx_dataset {listed(sources)}: none of {len(rows)} rows has a token to learn within {max_length} "
                f"tokens (their prompts take {min((e.prompt_length for e in encoded), default=0)} or more)"
            )
        self.dropped = len(rows) - len(examples)
        self.truncated = sum(len(e.ids) > max_length > e.prompt_length for e in encoded)
        super().__init__(examples, PromptSampler(len(examples), batch_size, seed), rank, world_size)


def _encode(row: Row, tokenizer: "PreTrainedTokenizerBase", conversation: "Conversation | None") -> Example:
    shape = next((names for names in _SHAPES if all(name in row.values for name in names)), None)
    if shape is None:
        allowed = " or ".join(" and ".join(repr(name) for name in names) for names in _SHAPES)
        raise UserError(f"{row.place}: supervised data needs the columns {allowed}; it has {listed(row.values)}")
    texts = [_text(row, name) for name in shape]
    prompt: list[int] = []
    if shape[0] == "question":
        if conversation is None:
            raise UserError(f"{row.place}: columns 'question' and 'answer' need a conversation template")
        prompt = conversation.encode_prompt(texts[0])
    elif shape[0] == "prompt":
        prompt = list(tokenizer.encode(texts[0], add_special_tokens=False))
    end = (
        conversation.end_of_assistant if conversation is not None and shape[0] != "text" else tokenizer.eos_token or ""
    )
    text = texts[-1] if texts[-1].endswith(end) else texts[-1] + end
    # Encoded apart from the prompt, because the model will generate it apart from the prompt.
    return Example((*prompt, *tokenizer.encode(text, add_special_tokens=False)), len(prompt))


def _text(row: Row, column: str) -> str:
    value = row.values[column]
    if not isinstance(value, str):
        raise UserError(f"{row.place}: column {column!r} must hold text, not {type(value).__name__} ({value!r:.60})")
    return value
