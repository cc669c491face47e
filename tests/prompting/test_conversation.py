"""Templates: what they render, what they refuse, and how prompts are cut."""

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from family_tokenizers import CHATML, family
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.tags import NAMES as TAG_NAMES
from rewards.tags import Tags
from rlvr.errors import UserError
from rlvr.prompting.conversation import Conversation, ConversationTemplate, auto_template
from rlvr.prompting.template import template_dir, template_names

SHIPPED = ["as_is", "gemma3", "generic", "llama3", "plain", "qwen2.5", "qwen3", "smollm2", "tiny"]


@cache
def conversation(name: str) -> Conversation:
    return Conversation(ConversationTemplate.load(name), family(name))


def config(name: str = "qwen2.5", **changes: Any) -> dict[str, Any]:
    return json.loads((template_dir() / f"{name}.json").read_text()) | changes


def bind(template: dict[str, Any], name: str = "qwen2.5") -> Conversation:
    return Conversation(ConversationTemplate.from_config(template, "mine.json"), family(name))


def refused(template: Any) -> str:
    with pytest.raises(UserError) as error:
        ConversationTemplate.from_config(template, "mine.json")
    assert "mine.json" in str(error.value)
    return str(error.value)


# ---- what is shipped


def test_names_and_files() -> None:
    assert template_names() == SHIPPED
    for name in SHIPPED:
        assert ConversationTemplate.load(str(template_dir() / f"{name}.json")) == ConversationTemplate.load(name)


@pytest.mark.parametrize("name", [name for name in SHIPPED if name != "as_is"])
def test_family_is_told_by_its_vocabulary(name: str) -> None:
    assert auto_template(family(name)) == name


def test_prompts_of_each_family() -> None:
    system = ConversationTemplate.load("qwen2.5").system_message
    chatml = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"
    assert conversation("tiny").prompt_text("2+3?") == "<|user|>2+3?<|assistant|>"
    assert conversation("smollm2").prompt_text("2+3?") == chatml
    assert conversation("qwen2.5").prompt_text("2+3?") == chatml
    assert conversation("qwen3").prompt_text("2+3?") == chatml
    assert conversation("generic").prompt_text("2+3?") == "<|start|>" + chatml
    assert conversation("llama3").prompt_text("2+3?") == (
        f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n{system}<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\n2+3?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert conversation("gemma3").prompt_text("2+3?") == (
        f"<bos><start_of_turn>user\n{system}\n\n2+3?<end_of_turn>\n<start_of_turn>model\n"
    )
    assert conversation("plain").prompt_text("2+3?") == f"<|endoftext|>{system}\n\nProblem: 2+3?\nSolution:"


@pytest.mark.parametrize("name", ["llama3", "gemma3", "generic"])
def test_start_token_comes_once_though_the_tokenizer_would_add_one(name: str) -> None:
    tokenizer = family(name)
    assert tokenizer.encode("a")[0] == tokenizer.bos_token_id
    assert conversation(name).encode_prompt("2+3?").count(tokenizer.bos_token_id) == 1


@pytest.mark.parametrize("name", SHIPPED)
def test_encoded_response_ends_in_the_first_stop_id(name: str) -> None:
    c = conversation(name)
    ids = c.encode_response(c.format_response("2+3=5", "5"))
    assert ids[-1] == c.stop_ids[0] and not set(ids[:-1]) & set(c.stop_ids)
    assert c.decode_response(ids) == "<think>2+3=5</think><answer>5</answer>"


def test_question_is_data_and_never_a_template() -> None:
    assert "{{ 7 * 7 }}{% if x %}" in conversation("llama3").prompt_text("{{ 7 * 7 }}{% if x %}")


# ---- reading a template


def test_unknown_name_lists_what_there_is() -> None:
    with pytest.raises(UserError, match="'qwen2.6' is neither.*gemma3, generic.*Did you mean 'qwen2.5'"):
        ConversationTemplate.load("qwen2.6")


def test_file_that_is_no_json(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{\n"chat_template": ,\n')
    with pytest.raises(UserError, match=r"mine\.json:2: not valid JSON"):
        ConversationTemplate.load(str(path))
    path.write_bytes(b'{"description": "\xff"}')
    with pytest.raises(UserError, match=r"mine\.json: .*not UTF-8"):
        ConversationTemplate.load(str(path))


# The shapes of ColossalChat's conversation_template/*.json: without tags (MiniCPM, tiny-llama), and with further keys (Qwen2.5-7B).
COLOSSALCHAT = [
    {
        "chat_template": "{% for message in messages %}{% if message['role'] == 'user' %}{{'<User>' + message['content'].strip() + '<AI>'}}{% else %}{{message['content'].strip()}}{% endif %}{% endfor %}",
        "system_message": "A chat between a curious human and an artificial intelligence assistant.",
        "stop_ids": [2],
        "end_of_assistant": "</s>",
    },
    {
        "chat_template": "{{ messages[0]['content'] }}",
        "system_message": None,
        "stop_ids": [1],
        "end_of_assistant": "<|im_end|>",
        "tts_config": {"voice": None},
        "response_format_tags": {name: {"text": f"<{name}>", "num_occur": 1} for name in ("think_start", "think_end", "answer_start", "answer_end")},
    },
]  # fmt: skip


def test_colossalchats_files_load_as_they_are() -> None:
    without, with_more = (ConversationTemplate.from_config(one, "theirs.json") for one in COLOSSALCHAT)
    assert without.tags == Tags.default() and without.stop_ids == (2,) and without.unread == ()
    assert with_more.unread == ("tts_config",) and with_more.tags.answer_start.text == "<answer_start>"


def test_unknown_and_missing_keys() -> None:
    message = refused(config() | {"stop_id": [1]})
    assert "'stop_id'" in message and "response_format_tags" in message and "Did you mean 'stop_ids'?" in message
    template = config()
    del template["system_message"], template["stop_ids"]
    message = refused(template)
    assert "'stop_ids'" in message and "'system_message'" in message
    assert "not a list" in refused([])


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("chat_template", 3, "not a number"),
        ("chat_template", " ", "is empty"),
        ("system_message", ["x"], "not a list"),
        ("stop_ids", "<|im_end|>", "not text"),
        ("stop_ids", [1.5], "1.5"),
        ("stop_ids", [True], "True"),
        ("stop_ids", [""], "''"),
        ("stop_ids", [], "nothing would end a response"),
        ("stop_strings", "</answer>", "not text"),
        ("stop_strings", [""], "''"),
        ("end_of_assistant", 2, "not a number"),
        ("description", {}, "not an object"),
    ],
)
def test_values_of_the_wrong_type(key: str, value: Any, said: str) -> None:
    message = refused(config() | {key: value})
    assert f"'{key}'" in message and said in message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tags: tags.pop("think_end"), "think_end"),
        (lambda tags: tags.update(answer_begin={"text": "<a>"}), "answer_begin"),
        (lambda tags: tags["think_end"].update(text="<think>"), "'<think>'"),
        (lambda tags: tags["answer_start"].update(text="  "), "answer_start"),
        (lambda tags: tags["answer_start"].update(text=5), "answer_start"),
        (lambda tags: tags["answer_start"].update(num_occur="1"), "answer_start.num_occur"),
        (lambda tags: tags["answer_start"].update(num_occurs=1), "Did you mean 'num_occur'?"),
        (lambda tags: tags.update(think_start=7), "think_start"),
        (lambda tags: tags.update(think_strat=tags.pop("think_start")), "Did you mean 'think_start'?"),
    ],
)
def test_tags_that_can_not_be_used(change: Any, said: str) -> None:
    template = copy.deepcopy(config())
    change(template["response_format_tags"])
    message = refused(template)
    assert "response_format_tags" in message and said in message
    assert "not an object" in refused(config(response_format_tags=[])) or "must map" in refused(
        config(response_format_tags=[])
    )


# ---- binding to a tokenizer


def test_stop_ids_by_number_and_by_name() -> None:
    vocabulary = family("qwen2.5").get_vocab()
    c = bind(config(stop_ids=[vocabulary["<|im_end|>"], "<|im_end|>", "<|endoftext|>"]))
    assert c.stop_ids == (vocabulary["<|im_end|>"], vocabulary["<|endoftext|>"])


def test_stop_ids_that_are_not_in_the_vocabulary() -> None:
    with pytest.raises(UserError, match=r"mine\.json, key 'stop_ids': 99999 is not in the vocabulary.*from 0 to"):
        bind(config(stop_ids=[99999]))
    with pytest.raises(UserError, match="-1 is not in the vocabulary"):
        bind(config(stop_ids=[-1]))
    with pytest.raises(UserError, match=r"'<\|im_ends\|>'.*<\|im_start\|>.*Did you mean '<\|im_end\|>'"):
        bind(config(stop_ids=["<|im_ends|>"]))


def test_null_stop_ids_are_the_end_token() -> None:
    assert bind(config(stop_ids=None, end_of_assistant=None)).end_of_assistant == "<|im_end|>"
    tokenizer = copy.deepcopy(family("qwen2.5"))
    tokenizer.eos_token = None
    template = ConversationTemplate.from_config(config(stop_ids=None), "mine.json")
    with pytest.raises(UserError, match="null stands for the tokenizer's end token.* has none"):
        Conversation(template, tokenizer)
    strings = ConversationTemplate.from_config(
        config(stop_ids=None, stop_strings=["</answer>"], end_of_assistant=None), "mine.json"
    )
    c = Conversation(strings, tokenizer)
    assert (c.stop_ids, c.stop_strings, c.end_of_assistant) == ((), ("</answer>",), "")


def test_tokenizer_without_a_chat_template() -> None:
    with pytest.raises(UserError, match="asks for the tokenizer's own chat template.*has none.*plain"):
        bind(config(chat_template=None, stop_ids=None), "plain")


def test_chat_template_taken_from_another_tokenizer(tmp_path: Path) -> None:
    folder = str(tmp_path / "tokenizer")
    family("generic").save_pretrained(folder)
    c = bind(config(chat_template=folder))
    # The other tokenizer's template, with this one's special tokens: this one has no start token.
    assert c.prompt_text("2+3?") == conversation("qwen2.5").prompt_text("2+3?")
    family("plain").save_pretrained(folder + "2")
    with pytest.raises(UserError, match=r"mine\.json.*has no chat template"):
        bind(config(chat_template=folder + "2"))


def test_chat_template_that_names_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mine\.json, key 'chat_template'.*is no jinja text.*nowhere"):
        bind(config(chat_template=str(tmp_path / "nowhere")))


@pytest.mark.parametrize("text", ["{% for message in messages %}", "{{ messages[9]['content'] + 1 }}", "{{ nope() }}"])
def test_jinja_that_can_not_be_rendered(text: str) -> None:
    with pytest.raises(UserError, match=r"mine\.json, key 'chat_template': can't be rendered"):
        bind(config(chat_template=text))


def test_jinja_can_not_reach_python() -> None:
    with pytest.raises(UserError, match="SecurityError"):
        bind(config(chat_template="{{ ''.__class__.__mro__ }}"))


@pytest.mark.parametrize(
    "template",
    [
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        + CHATML,
        "{% for message in messages if message['role'] != 'system' %}{{ message['content'] }}{% endfor %}",
    ],
    ids=["refuses", "leaves out"],
)
def test_system_message_joins_the_user_where_there_is_no_system_role(template: str) -> None:
    c = bind(config(chat_template=template, system_message="Use the tags."))
    assert c.system_in_user and "Use the tags.\n\n2+3?" in c.prompt_text("2+3?")
    assert not conversation("qwen2.5").system_in_user


# ---- tags


def test_a33_own_tags_are_honoured() -> None:
    texts = dict(zip(TAG_NAMES, ("[T]", "[/T]", "[A]", "[/A]"), strict=True))
    c = bind(config(response_format_tags={name: {"text": text, "num_occur": 1} for name, text in texts.items()}))
    assert c.format_response("2+3=5", "5") == "[T]2+3=5[/T][A]5[/A]"
    assert c.tags.answer_of(c.format_response("2+3=5", "5")) == "5"


def test_tag_that_the_prompt_already_writes_is_not_expected_in_the_response() -> None:
    tags = copy.deepcopy(config()["response_format_tags"])
    tags["think_start"]["num_occur"] = 0
    assert bind(config(response_format_tags=tags)).format_response("t", "5") == "t</think><answer>5</answer>"


# ---- truncation


@pytest.mark.parametrize("name", SHIPPED)
def test_a32_truncation_keeps_system_message_and_generation_header(name: str) -> None:
    c = conversation(name)
    question = "Natalia sold clips to 48 of her friends. " * 30 + "How many clips?"
    whole, empty = c.encode_prompt(question), c.encode_prompt("")
    assert c.truncate_prompt(question, len(whole)) == whole
    assert c.truncate_prompt(question, len(empty) - 1) is None
    for limit in (len(empty) + 6, (len(empty) + len(whole)) // 2, len(whole) - 1):
        ids = c.truncate_prompt(question, limit)
        assert ids is not None and limit - 3 <= len(ids) <= limit
        text = c.tokenizer.decode(ids)
        before, after = c.prompt_text("§").split("§")
        assert text.startswith(before) and text.endswith("clips?" + after)
        assert ids == c.encode_prompt(text[len(before) : len(text) - len(after)])


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["tiny", "llama3", "gemma3", "qwen3"]),
    question=st.text(alphabet=st.characters(codec="utf-8"), max_size=120),
    spare=st.integers(0, 60),
)
def test_a32_truncated_prompt_is_the_prompt_of_the_end_of_the_question(name: str, question: str, spare: int) -> None:
    c = conversation(name)
    limit = len(c.encode_prompt("")) + spare
    ids = c.truncate_prompt(question, limit)
    assert ids is not None
    cuts = [cut for cut in range(len(question) + 1) if c.encode_prompt(question[cut:]) == ids]
    assert len(ids) <= limit and cuts
    # One character more would not have fitted.
    if 0 not in cuts:
        assert any(len(c.encode_prompt(question[cut - 1 :])) > limit for cut in cuts)


# ---- several turns


@pytest.mark.parametrize("name", SHIPPED)
def test_what_an_environment_says_stands_as_the_template_writes_it(name: str) -> None:
    """Prompt, turn and observation are, as text, the conversation that the chat template makes of them."""
    c = conversation(name)
    turn = c.encode_response("it is 5")
    ids = [*c.encode_prompt("2+3?"), *turn, *c.encode_observation("no; try 6", turn)]
    messages = [*c.messages("2+3?", "it is 5"), {"role": "user", "content": "no; try 6"}]
    text = c.tokenizer.decode(ids, skip_special_tokens=False)
    assert text.replace(" ", "") == c.render(messages, add_generation_prompt=True).replace(" ", "")
    unended = c.encode("it is 5")
    longer = c.encode_observation("no; try 6", unended)
    assert c.tokenizer.decode(longer).replace(" ", "").startswith(c.end_of_assistant.replace(" ", ""))
    assert len(longer) == len(ids) - len(c.encode_prompt("2+3?")) - len(unended), "the end of the turn is there once"
