"""Preference data for reward models: pairs of a better and a worse response to one prompt, as token ids (`encode_pairs`).

A row has `chosen` and `rejected` (or the columns that `PairColumns` names), each the text of a response or a list of chat
messages, and one of

- `prompt`: text as it is, or a list of messages;
- `question`: goes through the conversation template;
- `context`: a list of messages, as ColossalChat has it;
- none of these: `chosen` and `rejected` then hold everything, prompt included.

A column `margin` says how much better the one is at least. What ends the assistant's turn closes both responses.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr.data.rows import Row, require_column, text_of
from rlvr.data.sft import (
    end_of_response,
    messages_of,
    render_prompt,
    require_template_for,
    with_end,
)
from rlvr.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr.prompting.conversation import Conversation


@dataclass(frozen=True)
class Pair:
    """Two whole sequences, prompt and response.

    Attributes:
        chosen, rejected: token ids.
        prompt: token ids that both begin with, as far as they are known apart; the pairs of one prompt stay together
            when some are held out.
        margin: least difference of the scores that is asked for.
    """

    chosen: tuple[int, ...]
    rejected: tuple[int, ...]
    prompt: tuple[int, ...] = ()
    margin: float = 0.0


@dataclass(frozen=True)
class PairColumns:
    """Columns that the user names; None = the usual ones (`prompt`, `question` and `margin` where the data has them)."""

    prompt: str | None = None
    question: str | None = None
    chosen: str | None = None
    rejected: str | None = None
    margin: str | None = None


@dataclass(frozen=True)
class EncodedPairs:
    """Encoded pairs, and how many were left out, and why.

    Attributes:
        items: those that can be learned from.
        rows: how many there were.
        equal: pairs whose responses are the same.
        empty: pairs of which a response is empty.
        overlong: pairs of which a response is too long; half of a response can't be judged.
    """

    items: list[Pair]
    rows: int
    equal: int
    empty: int
    overlong: int

    def notes(self, max_length: int) -> list[str]:
        """Lines for the user on pairs that were left out."""
        counts = (
            (self.equal, "chosen and rejected are the same"),
            (self.empty, "a response is empty"),
            (self.overlong, f"a response with its prompt is longer than {max_length} tokens"),
        )
        return [f"{count} of {self.rows} pairs left out: {what}" for count, what in counts if count]


def encode_pairs(
    rows: Sequence[Row],
    tokenizer: "PreTrainedTokenizerBase",
    conversation: "Conversation",
    *,
    max_length: int,
    where: str,
    columns: PairColumns | None = None,
) -> EncodedPairs:
    """Encode rows and leave out pairs that nothing can be learned from.

    Args:
        max_length: most tokens of a response with its prompt.
        where: the flag and sources, for messages.

    Raises:
        UserError: a row without the columns or of the wrong type (file and line), or no pair left.
    """
    items: list[Pair] = []
    equal = empty = overlong = 0
    for row in rows:
        pair = encode_pair(row, tokenizer, conversation, columns or PairColumns())
        if pair is None:
            empty += 1
        elif pair.chosen == pair.rejected:
            equal += 1
        elif max(len(pair.chosen), len(pair.rejected)) > max_length:
            overlong += 1
        else:
            items.append(pair)
    read = EncodedPairs(items, len(rows), equal, empty, overlong)
    if not items:
        raise UserError(f"{where}: no pair is left to learn from: {'; '.join(read.notes(max_length))}")
    return read


def encode_pair(
    row: Row, tokenizer: "PreTrainedTokenizerBase", conversation: "Conversation", columns: PairColumns
) -> Pair | None:
    """The pair of one row; None if a response is empty."""
    chosen, rejected = columns.chosen or "chosen", columns.rejected or "rejected"
    prompt = columns.prompt or columns.question or next((n for n in ("prompt", "question") if n in row.values), None)
    if prompt is None and isinstance(row.values.get("context"), list):
        prompt = "context"
    for name in (chosen, rejected, *([prompt] if prompt else [])):
        require_column(row, name)
    templated = prompt is not None and (
        columns.question is not None or (columns.prompt is None and prompt == "question")
    )
    sides = []
    for name in (chosen, rejected):
        side = _side(row, name, prompt, templated, tokenizer, conversation)
        if side is None:
            return None
        sides.append(side)
    (first, better), (_, worse) = sides
    return Pair((*first, *better), (*sides[1][0], *worse), tuple(first), _margin(row, columns))


def _side(
    row: Row,
    name: str,
    prompt: str | None,
    templated: bool,
    tokenizer: "PreTrainedTokenizerBase",
    conversation: "Conversation",
) -> tuple[list[int], list[int]] | None:
    """Token ids of the prompt and of one response; None if it is empty."""
    if isinstance(row.values[name], list) or (prompt and isinstance(row.values[prompt], list)):
        return _of_messages(row, name, prompt, conversation)
    text = text_of(row, name)
    if not text.strip():
        return None
    before: list[int] = []
    if prompt is not None:
        asked = text_of(row, prompt)
        before = conversation.encode_prompt(asked) if templated else _encode(tokenizer, asked)
    return before, _encode(tokenizer, with_end(text, end_of_response(tokenizer, conversation)))


def _of_messages(
    row: Row, name: str, prompt: str | None, conversation: "Conversation"
) -> tuple[list[int], list[int]] | None:
    messages = messages_of(row, prompt, "user") if prompt else []
    messages += messages_of(row, name, "assistant")
    if not messages or messages[-1]["role"] != "assistant":
        raise UserError(f"{row.place}: column {name!r} must end with a message of the role 'assistant'")
    answer = messages[-1]["content"]
    if not answer.strip():
        return None
    template = require_template_for(conversation, row, [name])
    before = template.encode(render_prompt(template, messages[:-1], row.place))
    return before, template.encode(with_end(answer, template.end_of_assistant))


def _encode(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _margin(row: Row, columns: PairColumns) -> float:
    name = columns.margin or "margin"
    if columns.margin is None and name not in row.values:
        return 0.0
    require_column(row, name)
    margin = _number(row.values[name])
    if margin is None or not math.isfinite(margin):
        raise UserError(f"{row.place}: column {name!r} must hold a finite number, not {row.values[name]!r:.60}")
    return margin


def _number(value: Any) -> float | None:
    """A number, or the text of one, as CSV has it."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
