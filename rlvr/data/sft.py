"""Rows for supervised fine-tuning (and the ptx loss) as token ids, with the tokens that are learned: `encode_rows`.

The prompt of a `question` is that of PPO: the conversation template's (`encode_row`). A row has one of these sets of columns, looked for in this order:

- `messages` or `conversations`: a list of chat messages, whose forms `rlvr.data.messages` knows; the assistant's turns are
  learned;
- `prompt` and `response` (or `completion`): texts as they are, with whatever turns and tags the data writes, or lists
  of messages;
- `question` and `answer`: the question goes through the conversation template, the answer is the assistant's whole turn
  (with its tags, if it is to have any);
- `text`: learned from its first token to its last, or a list of messages.

`TextColumns` names others. What ends the assistant's turn (or the tokenizer's end token) is put after every response
that does not end so already. A response is
encoded apart from its prompt, because the model will generate it apart from it: tokens never merge over the border.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rlvr.data.examples import Example
from rlvr.data.messages import Message, read_messages
from rlvr.data.rows import Row, require_column, short, text_of
from rlvr.errors import UserError, listed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from rlvr.prompting.conversation import Conversation

_MESSAGE_SHAPES = (("messages",), ("conversations",))
# Sets of columns, the first that a row has is taken.
_SHAPES = (
    *_MESSAGE_SHAPES,
    ("prompt", "response"),
    ("prompt", "completion"),
    ("question", "answer"),
    ("text",),
)


@dataclass(frozen=True)
class TextColumns:
    """Columns that the user names; None = the usual ones.

    Attributes:
        prompt: text as it is, or messages; needs `text`.
        text: with `prompt` its response, alone a plain text; or messages.
        question, answer: go through the conversation template.
    """

    prompt: str | None = None
    text: str | None = None
    question: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class EncodedExamples:
    """Encoded rows, and how many were left out or cut, and why.

    Attributes:
        items: those that can be learned from.
        rows: how many there were.
        empty: rows without a response.
        overlong: rows left out because they are too long, or because nothing to learn is left of them.
        truncated: rows that were cut.
    """

    items: list[Example]
    rows: int
    empty: int
    overlong: int
    truncated: int

    def notes(self, max_length: int) -> list[str]:
        """Lines for the user on rows that were left out or cut."""
        counts = (
            (self.empty, "left out: their response is empty"),
            (self.overlong, f"left out: longer than {max_length} tokens"),
            (self.truncated, f"cut to {max_length} tokens"),
        )
        return [f"{count} of {self.rows} rows {what}" for count, what in counts if count]


def encode_rows(
    rows: Sequence[Row],
    tokenizer: "PreTrainedTokenizerBase",
    conversation: "Conversation | None",
    *,
    max_length: int,
    overlong: Literal["drop", "truncate"],
    where: str,
    columns: TextColumns | None = None,
) -> EncodedExamples:
    """Encode rows and leave out those that can't be learned from.

    Args:
        conversation: template for questions and messages; its end marker closes every response.
        max_length: most tokens of a row.
        overlong: longer rows are left out, or cut on the right.
        where: the flag and sources, for messages.

    Raises:
        UserError: a row without the columns or of the wrong type (file and line), or nothing left to learn from.
    """
    items: list[Example] = []
    empty = dropped = truncated = 0
    shortest: list[int] = []
    for row in rows:
        encoded = encode_row(row, tokenizer, conversation, columns or TextColumns())
        empty += not encoded
        for example in encoded:
            long = len(example.ids) > max_length
            kept = example.cut(max_length) if long else example
            shortest.append(example.prompt_length)
            if (long and overlong == "drop") or not kept.learned:
                dropped += 1
            else:
                truncated += long
                items.append(kept)
    if not items:
        least = f" (their prompts take {min(shortest)} or more)" if shortest else ""
        why = f"; {empty} have an empty response" if empty else ""
        raise UserError(
            f"{where}: none of {len(rows)} rows has a token to learn within {max_length} tokens{least}{why}; "
            "raise --max_length, or look at the data"
        )
    return EncodedExamples(items, len(rows), empty, dropped, truncated)


def encode_row(
    row: Row, tokenizer: "PreTrainedTokenizerBase", conversation: "Conversation | None", columns: TextColumns
) -> list[Example]:
    """The examples of one row: one, or none for an empty response, or several for a conversation whose chat template
    writes earlier turns otherwise than it writes the last one."""
    kind, names = _choose(row, columns)
    values = [row.values[name] for name in names]
    if any(isinstance(value, list) for value in values):
        joined: list[Message] = []
        for name in names:
            joined += messages_of(row, name, "user" if name != names[-1] else "assistant")
        return encode_messages(joined, require_template_for(conversation, row, names), row.place)
    texts = [text_of(row, name) for name in names]
    if not texts[-1].strip():
        return []
    prompt: list[int] = []
    if kind == "question":
        prompt = require_template_for(conversation, row, names).encode_prompt(texts[0])
    elif kind == "prompt":
        prompt = list(tokenizer.encode(texts[0], add_special_tokens=False))
    end = end_of_response(tokenizer, conversation if kind != "text" else None)
    text = with_end(texts[-1], end)
    return [Example((*prompt, *tokenizer.encode(text, add_special_tokens=False)), len(prompt))]


def _choose(row: Row, columns: TextColumns) -> tuple[str, tuple[str, ...]]:
    """The row's kind (`question`, `prompt`, `text`, `messages` or `conversations`) and its columns."""
    if columns.question or columns.answer:
        return "question", _named(row, columns.question or "question", columns.answer or "answer")
    if columns.prompt and columns.text:
        return "prompt", _named(row, columns.prompt, columns.text)
    if columns.text:
        return "text", _named(row, columns.text)
    shape = next((names for names in _SHAPES if all(name in row.values for name in names)), None)
    if shape is None:
        allowed = " or ".join(" and ".join(repr(name) for name in names) for names in _SHAPES)
        raise UserError(f"{row.place}: supervised data needs the columns {allowed}; it has {listed(row.values)}")
    if shape in _MESSAGE_SHAPES and not isinstance(row.values[shape[0]], list):
        raise UserError(
            f"{row.place}: column {shape[0]!r} must hold a list of chat messages, not {short(row.values[shape[0]])}"
        )
    return shape[0], shape


def _named(row: Row, *names: str) -> tuple[str, ...]:
    for name in names:
        require_column(row, name)
    return names


def require_template_for(conversation: "Conversation | None", row: Row, names: Sequence[str]) -> "Conversation":
    """The conversation template; raises `UserError` where there is none, for these columns can't do without."""
    if conversation is None:
        raise UserError(f"{row.place}: columns {' and '.join(map(repr, names))} need a conversation template")
    return conversation


def end_of_response(tokenizer: "PreTrainedTokenizerBase", conversation: "Conversation | None") -> str:
    """Text that closes a response: the template's, else the tokenizer's end token."""
    return conversation.end_of_assistant if conversation is not None else tokenizer.eos_token or ""


def with_end(text: str, end: str) -> str:
    """`text` with its end marker; data that already writes the marker does not get it twice."""
    return text if end and text.endswith(end) else text + end


def encode_messages(messages: Sequence[Message], conversation: "Conversation", place: str) -> list[Example]:
    """Examples of a conversation: every turn of the assistant is learned after what the chat template writes before it.

    That is one example, as long as the template writes earlier turns as the model generated them. One that does not
    (Qwen3 leaves out earlier thinking) gives an example for each stretch that it writes alike. Nothing after the last
    turn of the assistant is kept.

    Returns:
        Nothing where there is no such turn or one is empty.

    Raises:
        UserError: the chat template refuses the conversation.
    """
    turns = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
    if not turns or any(not messages[i]["content"].strip() for i in turns):
        return []
    examples: list[Example] = []
    ids: list[int] = []
    text, first, skipped = "", 0, []
    for turn in turns:
        prompt = render_prompt(conversation, messages[:turn], place)
        if ids and prompt.startswith(text):
            start = len(ids)
            ids += conversation.encode(prompt[len(text) :])
            skipped.append((start, len(ids)))
        else:
            if ids:
                examples.append(Example(tuple(ids), first, tuple(skipped)))
            ids = conversation.encode(prompt)
            first, skipped = len(ids), []
        response = with_end(messages[turn]["content"], conversation.end_of_assistant)
        ids += conversation.encode(response)
        text = prompt + response
    return [*examples, Example(tuple(ids), first, tuple(skipped))]


def render_prompt(conversation: "Conversation", messages: Sequence[Message], place: str) -> str:
    """The text before the assistant's next turn, as the chat template writes it.

    Raises:
        UserError: the chat template refuses these messages.
    """
    try:
        return conversation.render(messages, add_generation_prompt=True)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def messages_of(row: Row, column: str, role_of_text: str) -> list[Message]:
    """A column's chat messages; a plain text is one message of `role_of_text`.

    Raises:
        UserError: anything else, and roles that are not known.
    """
    value = row.values[column]
    if not isinstance(value, list):
        return [{"role": role_of_text, "content": text_of(row, column)}]
    return read_messages(value, row.place, column)
