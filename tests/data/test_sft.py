"""Rows of supervised data: which tokens are learned, and every row that can't be used."""

import json
from pathlib import Path
from typing import Any

import pytest
from family_tokenizers import family

from rlvr.data.examples import Example
from rlvr.data.rows import Row
from rlvr.data.sft import EncodedExamples, TextColumns, encode_rows
from rlvr.errors import UserError
from rlvr.models.tiny import build_tiny_tokenizer
from rlvr.prompting.conversation import Conversation, ConversationTemplate

TOKENIZER = family("qwen2.5")
CONVERSATION = Conversation(ConversationTemplate.load("qwen2.5"), TOKENIZER)
ASK = {"role": "user", "content": "2+3?"}
REPLY = {"role": "assistant", "content": "5"}


def encode(*rows: dict[str, Any], columns: TextColumns | None = None, **changes: Any) -> EncodedExamples:
    arguments: dict[str, Any] = {"max_length": 400, "overlong": "drop", "where": "--dataset d.jsonl"} | changes
    conversation = arguments.pop("conversation", CONVERSATION)
    placed = [Row(row, f"d.jsonl:{number}") for number, row in enumerate(rows, start=1)]
    return encode_rows(placed, TOKENIZER, conversation, columns=columns, **arguments)


def with_template(chat_template: str) -> Conversation:
    """Qwen's tokenizer with another chat template."""
    content = json.loads(Path(ConversationTemplate.load("qwen2.5").source).read_text())
    content |= {"chat_template": chat_template, "system_message": ""}
    return Conversation(ConversationTemplate.from_config(content, "t.json"), TOKENIZER)


def parts(example: Example) -> list[str]:
    """The text in stretches, those that are learned between [ and ]."""
    learned, out, last = set(example.learned), [], None
    runs: list[tuple[bool, list[int]]] = []
    for place, token in enumerate(example.ids):
        if (place in learned) is not last:
            last = place in learned
            runs.append((last, []))
        runs[-1][1].append(token)
    for is_learned, ids in runs:
        text = TOKENIZER.decode(ids)
        out.append(f"[{text}]" if is_learned else text)
    return out


def one(row: dict[str, Any], **changes: Any) -> list[str]:
    (example,) = encode(row, **changes).items
    return parts(example)


def test_only_the_assistants_turns_are_learned() -> None:
    more = [
        {"role": "user", "content": "4+4?"},
        {"role": "assistant", "content": "8"},
        {"role": "user", "content": "thanks"},
    ]
    first = CONVERSATION.render([ASK], add_generation_prompt=True)
    second = "\n<|im_start|>user\n4+4?<|im_end|>\n<|im_start|>assistant\n"
    assert one({"messages": [ASK, REPLY, *more]}) == [first, "[5<|im_end|>]", second, "[8<|im_end|>]"]


def test_sharegpt_rows_are_the_same_conversations() -> None:
    asked = [
        {"from": "system", "value": "Be brief."},
        {"from": "human", "value": "2+3?"},
        {"from": "gpt", "value": "5"},
    ]
    ours = one({"messages": [{"role": "system", "content": "Be brief."}, ASK, REPLY]})
    assert one({"conversations": asked}) == ours and one({"conversations": [asked[0], ASK, REPLY]}) == ours


def test_colossalchats_rows_are_the_same_conversations() -> None:
    asked = [{"from": "system", "content": "Be brief."}, {"from": "user", "content": "2+3?"}]
    ours = one({"messages": [{"role": "system", "content": "Be brief."}, ASK, REPLY]})
    assert one({"messages": [*asked, {"from": "assistant", "content": "5"}]}) == ours


def test_a_system_message_of_the_data_is_kept() -> None:
    system = {"role": "system", "content": "Be brief."}
    text = "".join(one({"messages": [system, ASK, REPLY]}))
    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+3?")


def test_a_template_that_rewrites_earlier_turns_gives_an_example_for_each_stretch() -> None:
    """As Qwen3's does: earlier thinking is left out, so the second turn's prompt is not what the model generated."""
    forgets = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{{ m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    think = {"role": "assistant", "content": "<think>2+3=5</think>5"}
    read = encode({"messages": [ASK, think, ASK, REPLY]}, conversation=with_template(forgets))
    assert [parts(e) for e in read.items] == [
        ["<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n", "[<think>2+3=5</think>5<|im_end|>]"],
        [
            "<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n5<|im_end|>\n"
            "<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n",
            "[5<|im_end|>]",
        ],
    ]


def test_conversational_prompt_and_completion() -> None:
    whole = one({"messages": [ASK, REPLY]})
    assert one({"prompt": [ASK], "completion": [REPLY]}) == whole
    assert one({"prompt": [ASK], "response": "5"}) == whole
    assert one({"prompt": "Q: 2+3? A:", "completion": " 5"}) == ["Q: 2+3? A:", "[ 5<|im_end|>]"]


def test_named_columns() -> None:
    row = {"q": "2+3?", "a": "5", "text": "unused"}
    as_they_are = TextColumns(prompt="q", text="a")
    assert one(row, columns=as_they_are) == ["2+3?", "[5<|im_end|>]"]
    templated = TextColumns(question="q", answer="a")
    assert one(row, columns=templated) == [CONVERSATION.prompt_text("2+3?"), "[5<|im_end|>]"]
    assert one({"chat": [ASK, REPLY]}, columns=TextColumns(text="chat")) == one({"messages": [ASK, REPLY]})
    whole = encode(row, columns=TextColumns(text="q")).items[0]
    assert TOKENIZER.decode(whole.ids) == "2+3?<|im_end|>" and whole.learned == list(range(1, len(whole.ids)))
    with pytest.raises(UserError, match=r"d\.jsonl:1: there is no column 'w'; the columns are q, a, text"):
        encode(row, columns=TextColumns(question="q", answer="w"))


def test_empty_responses_are_left_out_and_counted() -> None:
    read = encode(
        {"prompt": "a", "response": " \n"},
        {"prompt": "a", "response": "b"},
        {"messages": [ASK]},
        {"messages": [ASK, {"role": "assistant", "content": ""}]},
        {"messages": []},
    )
    assert (len(read.items), read.empty, read.rows) == (1, 4, 5)
    assert read.notes(400) == ["4 of 5 rows left out: their response is empty"]
    with pytest.raises(
        UserError, match="--dataset d.jsonl: none of 1 rows has a token to learn.*1 have an empty response"
    ):
        encode({"prompt": "a", "response": ""})


def test_rows_that_are_too_long_are_left_out_or_cut() -> None:
    rows = [
        {"prompt": "7" * 4, "response": "8" * 50},
        {"prompt": "7" * 50, "response": "8"},
        {"prompt": "7", "response": "8"},
    ]
    dropped = encode(*rows, max_length=20)
    assert (len(dropped.items), dropped.overlong, dropped.truncated) == (1, 2, 0)
    assert dropped.notes(20) == ["2 of 3 rows left out: longer than 20 tokens"]
    cut = encode(*rows, max_length=20, overlong="truncate")
    assert [len(e.ids) for e in cut.items] == [20, 3] and (cut.overlong, cut.truncated) == (1, 1)
    with pytest.raises(UserError, match="none of 1 rows .* within 20 tokens"):
        encode(rows[0], max_length=20)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"foo": "a"}, r"needs the columns 'messages' or .*'text'; it has foo"),
        ({"messages": [ASK, {"role": "robot", "content": "x"}]}, "role 'robot'; roles are system, user, assistant"),
        ({"messages": [ASK, {"role": "assistant"}]}, "must hold chat messages"),
        ({"conversations": [{"from": "tool", "value": "x"}]}, "role 'tool'; roles are system, user, assistant"),
        ({"conversations": [{"from": ["gpt"], "value": "x"}]}, "must hold chat messages"),
        ({"conversations": "hello"}, "'conversations' must hold a list of chat messages, not 'hello'"),
        ({"messages": [ASK, {"role": "assistant", "content": [{"type": "text"}]}]}, "must hold chat messages"),
        ({"messages": [ASK, "5"]}, "must hold chat messages"),
        ({"messages": "hello"}, "must hold a list of chat messages, not 'hello'"),
        ({"prompt": "a", "response": 5}, r"column 'response' must hold text, not int"),
        ({"prompt": None, "response": "5"}, r"column 'prompt' must hold text, not NoneType"),
        ({"text": "half \ud83d"}, "half a character"),
    ],
)
def test_rows_that_can_not_be_used_are_named(row: dict, message: str) -> None:
    with pytest.raises(UserError, match=rf"d\.jsonl:2: .*{message}"):
        encode({"text": "fine"}, row)


def test_a_conversation_that_the_template_refuses() -> None:
    picky = "{% if messages|length > 1 %}{{ raise_exception('one message, please') }}{% endif %}{{ messages[0]['content'] }}"
    with pytest.raises(UserError, match=r"d\.jsonl:1: conversation template t.json, .*one message, please"):
        encode({"messages": [ASK, ASK, REPLY]}, conversation=with_template(picky))


def test_the_built_in_tokenizer_learns_what_it_will_generate() -> None:
    tokenizer = build_tiny_tokenizer()
    conversation = Conversation(ConversationTemplate.load("tiny"), tokenizer)
    row = Row({"question": "2+3=?", "answer": "<think></think><answer>5</answer>"}, "d:1")
    (example,) = encode_rows([row], tokenizer, conversation, max_length=99, overlong="drop", where="d").items
    assert list(example.ids[example.prompt_length :]) == conversation.encode_response(
        "<think></think><answer>5</answer>"
    )
