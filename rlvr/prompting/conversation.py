"""`Conversation`: a conversation template bound to a tokenizer; it turns a problem into the token ids of its prompt.

    conversation = Conversation(ConversationTemplate.load("qwen2.5"), tokenizer)
    ids = conversation.encode_prompt("What is 2 + 3?")

`choose_template` finds the template for a tokenizer; `attach_chat_template` hands it on with a saved model. The keys of a
template file are described in `rlvr/prompting/template.py`.

Left out on purpose: the tool roles of chat templates; what an environment says is the user's turn, which every template has.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jinja2 import TemplateError
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from rlvr.errors import UserError, did_you_mean, listed
from rlvr.prompting.template import ConversationTemplate, template_names

__all__ = ["Conversation", "ConversationTemplate", "attach_chat_template", "auto_template", "choose_template"]

Messages = Sequence[Mapping[str, str]]
_RAISED_IN_TEMPLATES = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
)
"""What jinja lets out of the sandbox of a template besides its own errors."""

_PROBE = "There are seventytwo pens"
"""An assistant's turn that no template contains."""
_OBSERVATION = "Then there are seventythree"


class Conversation:
    """A template bound to a tokenizer.

    A chat template that knows no system role (it refuses one, or leaves it out) gets the system message at the start
    of the user's turn.

    Attributes:
        tags: the response's tags.
        stop_ids: tokens that end a response.
        stop_strings: texts that end a response.
        end_of_assistant: text that closes the assistant's turn.
        system_in_user: the system message stands in the user's turn.

    Raises:
        UserError: the tokenizer has no chat template and the template none either, the chat template can't be
            rendered, or a stop id is not in the vocabulary.
    """

    def __init__(self, template: ConversationTemplate, tokenizer: PreTrainedTokenizerBase) -> None:
        self.template, self.tokenizer = template, tokenizer
        self.tags, self.stop_strings = template.tags, template.stop_strings
        self.stop_ids = _resolve_stop_ids(template, tokenizer)
        self._chat_template = _resolve_chat_template(template, tokenizer)
        self.end_of_assistant = template.end_of_assistant or (
            tokenizer.decode([self.stop_ids[0]], skip_special_tokens=False) if self.stop_ids else ""
        )
        self.system_in_user = False  # read by the probe in the next line
        self.system_in_user = bool(template.system_message) and not self._knows_system_role()
        self.prompt_text("probe")  # raises if it can't be rendered

    @property
    def name(self) -> str:
        """The tokenizer's name, for messages."""
        return str(self.tokenizer.name_or_path or type(self.tokenizer).__name__)

    def messages(self, question: str, response: str | None = None) -> list[dict[str, str]]:
        """The conversation as chat messages, with the assistant's turn if `response` is given."""
        system, user = self.template.system_message, question
        if self.system_in_user:
            system, user = "", f"{system}\n\n{question}"
        turns = [("system", system)] if system else []
        turns.append(("user", user))
        if response is not None:
            turns.append(("assistant", response))
        return [{"role": role, "content": content} for role, content in turns]

    def render(self, messages: Messages, *, add_generation_prompt: bool) -> str:
        """The text of a conversation, as the chat template writes it.

        Raises:
            UserError: the chat template refuses it, or fails.
        """
        try:
            text = self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=self._chat_template,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
        except (TemplateError, *_RAISED_IN_TEMPLATES) as error:
            raise UserError(
                f"conversation template {self.template.source}, key 'chat_template': can't be rendered with the tokenizer "
                f"{self.name}: {type(error).__name__}: {error}"
            ) from error
        assert isinstance(text, str)
        return text

    def saved_template(self) -> dict[str, Any]:
        """The template as plain JSON which needs no other file or tokenizer: its jinja text is there in full."""
        return replace(self.template, chat_template=self._chat_template).to_config()

    def chat_template(self) -> str:
        """Jinja text for the saved tokenizer, which makes of a bare question the prompt of training: where a conversation
        brings no system message, the template's is put before it."""
        if not self.template.system_message:
            return self._chat_template
        system = json.dumps(self.template.system_message)
        first = f"{{'role': 'system', 'content': {system}}}] + messages"
        if self.system_in_user:
            first = f"{{'role': 'user', 'content': {system} + '\\n\\n' + messages[0]['content']}}] + messages[1:]"
        missing = "messages[0]['role'] != 'system'"
        return f"{{%- if {missing} -%}}{{%- set messages = [{first} -%}}{{%- endif -%}}" + self._chat_template

    def prompt_text(self, question: str) -> str:
        """The text that the model is to continue with its response."""
        return self.render(self.messages(question), add_generation_prompt=True)

    def encode(self, text: str) -> list[int]:
        """Token ids of rendered text. The chat template wrote the special tokens, so none are added here."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode_response(self, ids: Sequence[int]) -> str:
        """A response's text as the reward functions see it: without special tokens."""
        text = self.tokenizer.decode(list(ids), skip_special_tokens=True)
        assert isinstance(text, str)
        return text

    def encode_prompt(self, question: str) -> list[int]:
        """Token ids of the prompt."""
        return self.encode(self.prompt_text(question))

    def encode_response(self, response: str) -> list[int]:
        """Token ids of a response and of what ends the assistant's turn, as the model would generate them."""
        return self.encode(response + self.end_of_assistant)

    def truncate_prompt(self, question: str, max_tokens: int) -> list[int] | None:
        """Token ids of the prompt with the question cut on its left until at most `max_tokens` are left.

        The system message and the generation header are never cut (pitfall A32): the end of a question says what is
        asked, and without the header the model would continue the question. The cut is found by bisection, so it is
        the longest end of the question that fits, or within a character or two of it where the tokenizer merges over
        the cut.

        Returns:
            None where not even an empty question fits.
        """
        ids = self.encode_prompt(question)
        if len(ids) <= max_tokens:
            return ids
        best = self.encode_prompt("")
        if len(best) > max_tokens:
            return None
        too_long, fits = 0, len(question)  # characters cut
        while fits - too_long > 1:
            middle = (too_long + fits) // 2
            ids = self.encode_prompt(question[middle:])
            if len(ids) <= max_tokens:
                fits, best = middle, ids
            else:
                too_long = middle
        return best

    def encode_observation(self, text: str, turn: Sequence[int]) -> list[int]:
        """Token ids between a turn of the assistant and its next: an environment's text as the user's turn, with what the chat template
        puts around it. A turn that has not ended itself, by the token that the template ends it with, is ended.

        Args:
            turn: token ids of the assistant's turn; they stay as they are.
        """
        ids = self.encode(self._after_turn(text))
        ended = bool(ids and turn) and ids[0] == turn[-1] and ids[0] in self.stop_ids
        return ids[1:] if ended else ids

    def check_turns(self) -> None:
        """Refuse a chat template that has no place for what an environment says.

        Raises:
            UserError: it refuses a second turn of the user, or leaves one of the two out.
        """
        if _OBSERVATION not in self._after_turn(_OBSERVATION):
            raise UserError(
                f"conversation template {self.template.source}, key 'chat_template': leaves out what an environment says after the "
                "assistant's turn; take a template that renders several turns (`rlvr template list`)"
            )

    def _after_turn(self, text: str) -> str:
        """What the chat template writes after an assistant's turn, where the user goes on with `text`."""
        answered = [*self.messages("probe", _PROBE), {"role": "user", "content": text}]
        return self.render(answered, add_generation_prompt=True).partition(_PROBE)[2]

    def format_response(self, thought: str, answer: str) -> str:
        """A response in the template's format, each tag as often as the template says."""
        t = self.tags
        before, between, opening, after = (
            tag.text * tag.num_occur for tag in (t.think_start, t.think_end, t.answer_start, t.answer_end)
        )
        return f"{before}{thought}{between}{opening}{answer}{after}"

    def _knows_system_role(self) -> bool:
        """True where the chat template renders a system message: some refuse it, some leave it out."""
        try:
            text = self.prompt_text("probe")
        except UserError:
            return False
        return self.template.system_message.strip() in text


def _resolve_chat_template(template: ConversationTemplate, tokenizer: PreTrainedTokenizerBase) -> str:
    """Jinja text: the template's, the tokenizer's own, or another tokenizer's."""
    given, where = template.chat_template, f"conversation template {template.source}, key 'chat_template'"
    if given is None:
        if not tokenizer.chat_template:
            others = [name for name in template_names() if name != "generic"]
            raise UserError(
                f"{where}: asks for the tokenizer's own chat template, and {tokenizer.name_or_path or 'the tokenizer'} has "
                f"none; use a template that brings one ({listed(others)}; `plain` suits base models) or give jinja text"
            )
        return str(tokenizer.get_chat_template())
    if not template.names_tokenizer:
        return given
    from rlvr.models.loading import load_tokenizer

    try:
        source = load_tokenizer(given)
    except UserError as error:
        raise UserError(
            f"{where}: {given!r} is no jinja text (there is no {{{{ or {{% in it), so it names a tokenizer to take the "
            f"chat template from; {error}"
        ) from None
    if not source.chat_template:
        raise UserError(f"{where}: the tokenizer {given!r} has no chat template; give jinja text, or null")
    return source.get_chat_template()


def _resolve_stop_ids(template: ConversationTemplate, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    where = f"conversation template {template.source}, key 'stop_ids'"
    name = tokenizer.name_or_path or "the tokenizer"
    if template.stop_ids is None:
        if tokenizer.eos_token_id is not None:
            return (int(tokenizer.eos_token_id),)
        if template.stop_strings:
            return ()
        raise UserError(f"{where}: null stands for the tokenizer's end token, and {name} has none; list the stop ids")
    vocabulary = tokenizer.get_vocab()
    ids: list[int] = []
    for stop in template.stop_ids:
        if isinstance(stop, str) and stop not in vocabulary:
            special = [*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()]
            raise UserError(
                f"{where}: the token {stop!r} is not in the vocabulary of {name}; its special tokens: "
                f"{listed(dict.fromkeys(special))}.{did_you_mean(stop, special)} Is this the template for another model?"
            )
        if isinstance(stop, int) and not 0 <= stop < len(tokenizer):
            raise UserError(
                f"{where}: {stop} is not in the vocabulary of {name}, whose ids go from 0 to {len(tokenizer) - 1}. Is "
                "this the template for another model?"
            )
        ids.append(vocabulary[stop] if isinstance(stop, str) else stop)
    return tuple(dict.fromkeys(ids))


# Which template fits a tokenizer.

SAVED_TEMPLATE = "rlvr_template"
"""Key of a saved tokenizer's settings that holds the template which the model was trained with."""
# Tokens that only this family's vocabulary holds together, the most telling families first: Qwen3 has all of Qwen2.5's.
_FAMILY_TOKENS = {
    "tiny": ("<|user|>", "<|assistant|>", "<|end|>", "<think>", "<answer>"),
    "llama3": ("<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|end_of_text|>"),
    "gemma3": ("<start_of_turn>", "<end_of_turn>", "<eos>"),
    "qwen3": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|box_start|>", "<think>"),
    "qwen2.5": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|box_start|>"),
    "smollm2": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>"),
}


def choose_template(name: str, tokenizer: PreTrainedTokenizerBase) -> ConversationTemplate:
    """The template that was named; with `auto` the one that the model was trained with (`attach_chat_template` saves it with
    the tokenizer), or else the shipped one that fits the tokenizer (`auto_template`).

    Raises:
        UserError: there is none of this name, or its file can't be used.
    """
    saved = tokenizer.init_kwargs.get(SAVED_TEMPLATE)
    if name == "auto" and saved is not None:
        source = f"{SAVED_TEMPLATE} in {tokenizer.name_or_path}"
        template = ConversationTemplate.from_config(saved, source)
        # A name in place of jinja text would let a model from elsewhere have us load another tokenizer.
        if template.chat_template is None or template.names_tokenizer:
            raise UserError(f"conversation template {source}, key 'chat_template': is no jinja text; name a template")
        return template
    return ConversationTemplate.load(auto_template(tokenizer) if name == "auto" else name)


def auto_template(tokenizer: PreTrainedTokenizerBase) -> str:
    """Name of the shipped template that fits the tokenizer's vocabulary.

    Families are told apart by their special tokens; other tokenizers get `generic` if they carry a chat template of their
    own, and else `plain`.
    """
    vocabulary = tokenizer.get_vocab()
    for name, tokens in _FAMILY_TOKENS.items():
        if all(token in vocabulary for token in tokens):
            return name
    return "generic" if tokenizer.chat_template else "plain"


# Handing the template on with a saved model.


def attach_chat_template(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    conversation: Conversation,
    *,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
) -> None:
    """Make others use the saved model as it was trained: the tokenizer gets the prompts of training as its chat template, and
    the model the ends of its responses. The template itself, with its tags, goes along for our own tools (`choose_template`).

    Args:
        model: whose `generation_config` is replaced; saved with it.
        tokenizer: saved with the model.
        conversation: how prompts were made.
        max_new_tokens: most tokens of a response in training; None = not said.
        temperature: of sampling in training.
    """
    tokenizer.init_kwargs[SAVED_TEMPLATE] = conversation.saved_template()
    tokenizer.chat_template = conversation.chat_template()
    ends = list(conversation.stop_ids)
    if tokenizer.eos_token_id is not None and tokenizer.eos_token_id not in ends:
        ends.append(tokenizer.eos_token_id)
    sampled = temperature > 0
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends,
        pad_token_id=tokenizer.pad_token_id,
        max_new_tokens=max_new_tokens,
        do_sample=sampled,
        **({"temperature": temperature, "top_k": 0, "top_p": 1.0} if sampled else {}),
    )
