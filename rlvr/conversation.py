"""How a problem becomes a prompt: conversation templates, and a template bound to a tokenizer.

A template is a JSON file (`templates/*.json`). Its keys:

- `chat_template`: jinja text, null (the tokenizer's own), or the name or path of a tokenizer to take it from;
- `system_message`: what tells the model of the response format (null or "": none);
- `stop_ids`: token ids or token strings that end a response; null: the tokenizer's end token;
- `stop_strings`: texts that end a response (optional);
- `end_of_assistant`: text that closes the assistant's turn; null: that of the first stop id (optional);
- `response_format_tags`: `think_start`, `think_end`, `answer_start`, `answer_end`, each with `text` and `num_occur`;
- `description`: one line for people (optional).

    conversation = Conversation(ConversationTemplate.load("qwen2.5"), tokenizer)
    ids = conversation.encode_prompt("What is 2 + 3?")

Left out on purpose: several turns and tool calls. A problem is one question.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from rewards.tags import Tags

from rlvr.errors import UserError
from rlvr.suggest import did_you_mean, listed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_REQUIRED = ("chat_template", "system_message", "stop_ids", "response_format_tags")
_OPTIONAL = ("stop_strings", "end_of_assistant", "description")
_TAG_NAMES = ("think_start", "think_end", "answer_start", "answer_end")

# What `auto` goes by: tokens that only this family's vocabulary holds together, the most telling families first.
_FAMILY_TOKENS = {
    "tiny": ("<|user|>", "<|assistant|>", "<|end|>", "<think>", "<answer>"),
    "llama3": ("<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>", "<|end_of_text|>"),
    "gemma3": ("<start_of_turn>", "<end_of_turn>", "<eos>"),
    "qwen3": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|box_start|>", "<think>"),
    "qwen2.5": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|box_start|>"),
    "smollm2": ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>"),
}


def template_dir() -> Path:
    """Folder of the shipped templates: `rlvr/templates` where installed from a wheel, `templates` in the checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def template_names() -> list[str]:
    """Names of the shipped templates."""
    return sorted(path.stem for path in template_dir().glob("*.json"))


def auto_template(tokenizer: "PreTrainedTokenizerBase") -> str:
    """Name of the shipped template that fits the tokenizer's vocabulary.

    Families are told by their special tokens; other tokenizers get `generic` if they carry a chat template of their
    own, and else `plain`.
    """
    vocabulary = tokenizer.get_vocab()
    for name, tokens in _FAMILY_TOKENS.items():
        if all(token in vocabulary for token in tokens):
            return name
    return "generic" if tokenizer.chat_template else "plain"


@dataclass(frozen=True)
class ConversationTemplate:
    """A template file, validated. The fields are the file's keys; `source` is where it came from, for messages.

    Attributes:
        chat_template: jinja text, the name or path of a tokenizer, or None (the tokenizer's own).
        system_message: "" = none.
        stop_ids: token ids and token strings; None = the tokenizer's end token.
        tags: the key `response_format_tags`.
    """

    source: str
    chat_template: str | None
    system_message: str
    stop_ids: tuple[int | str, ...] | None
    tags: Tags
    stop_strings: tuple[str, ...] = ()
    end_of_assistant: str | None = None
    description: str = ""

    @classmethod
    def load(cls, name_or_path: str) -> "ConversationTemplate":
        """Read a shipped template by name, or a JSON file by path.

        Raises:
            UserError: neither a shipped name nor a file, not JSON, or a key that is unknown, missing or wrong.
        """
        path = Path(name_or_path).expanduser()
        if name_or_path in template_names():
            path = template_dir() / f"{name_or_path}.json"
        elif not path.is_file():
            raise UserError(
                f"conversation template {name_or_path!r} is neither a shipped template ({listed(template_names())}) nor "
                f"a JSON file.{did_you_mean(name_or_path, template_names())}"
            )
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UserError(f"conversation template {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UserError(f"conversation template {path}: not UTF-8 text") from None
        except json.JSONDecodeError as error:
            raise UserError(f"conversation template {path}:{error.lineno}: not valid JSON: {error.msg}") from None
        return cls.from_config(config, str(path))

    @classmethod
    def from_config(cls, config: Any, source: str) -> "ConversationTemplate":
        """Build a template from the contents of a file; `source` stands in messages.

        Raises:
            UserError: names the source and the key.
        """
        check = _Keys(config, source)
        return cls(
            source=source,
            chat_template=check.text("chat_template", "jinja text, a tokenizer's name, or null", empty=False),
            system_message=check.text("system_message", "text or null") or "",
            stop_ids=check.stop_ids(),
            tags=check.tags(),
            stop_strings=check.stop_strings(),
            end_of_assistant=check.text("end_of_assistant", "text or null", empty=False),
            description=check.text("description", "text") or "",
        )


class _Keys:
    """The keys of a template file, read with messages that name file and key."""

    def __init__(self, config: Any, source: str) -> None:
        self.source = source
        if not isinstance(config, Mapping):
            raise UserError(f"{self._where()}: must hold a JSON object, not {_kind(config)}")
        self.config = config
        known = [*_REQUIRED, *_OPTIONAL]
        for key in config:
            if key not in known:
                raise UserError(
                    f"{self._where()}: unknown key {key!r}; allowed: {listed(known)}.{did_you_mean(key, known)}"
                )
        if missing := [key for key in _REQUIRED if key not in config]:
            raise UserError(f"{self._where()}: missing key {listed(map(repr, missing))}; required: {listed(_REQUIRED)}")

    def _where(self, key: str | None = None) -> str:
        return f"conversation template {self.source}" + (f", key {key!r}" if key else "")

    def text(self, key: str, allowed: str, *, empty: bool = True) -> str | None:
        value = self.config.get(key)
        if value is not None and not isinstance(value, str):
            raise UserError(f"{self._where(key)}: must be {allowed}, not {_kind(value)}")
        if value is not None and not empty and not value.strip():
            raise UserError(f"{self._where(key)}: is empty; give {allowed}")
        return value

    def stop_ids(self) -> tuple[int | str, ...] | None:
        key, allowed = "stop_ids", 'a list of token ids and token strings such as [2, "<|im_end|>"], or null'
        value = self.config[key]
        if value is None:
            return None
        if not isinstance(value, list):
            raise UserError(f"{self._where(key)}: must be {allowed}, not {_kind(value)}")
        for item in value:
            if isinstance(item, bool) or not isinstance(item, int | str) or item == "":
                raise UserError(f"{self._where(key)}: must be {allowed}; it holds {item!r}")
        if not value and not self.config.get("stop_strings"):
            raise UserError(
                f"{self._where(key)}: is empty and so is 'stop_strings', so nothing would end a response; give {allowed}, "
                "where null stands for the tokenizer's end token"
            )
        return tuple(value)

    def stop_strings(self) -> tuple[str, ...]:
        key, allowed = "stop_strings", "a list of texts that are not empty"
        value = self.config.get(key, [])
        if not isinstance(value, list):
            raise UserError(f"{self._where(key)}: must be {allowed}, not {_kind(value)}")
        for item in value:
            if not isinstance(item, str) or not item:
                raise UserError(f"{self._where(key)}: must be {allowed}; it holds {item!r}")
        return tuple(value)

    def tags(self) -> Tags:
        key = "response_format_tags"
        value = self.config[key]
        example = '{"text": "<think>", "num_occur": 1}'
        if not isinstance(value, Mapping):
            raise UserError(f"{self._where(key)}: must map {listed(_TAG_NAMES)} to {example} each, not {_kind(value)}")
        for name in value:
            if name not in _TAG_NAMES:
                near = did_you_mean(name, _TAG_NAMES)
                raise UserError(f"{self._where(key)}: unknown tag {name!r}; allowed: {listed(_TAG_NAMES)}.{near}")
        for name in _TAG_NAMES:
            if name not in value:
                raise UserError(f"{self._where(key)}: missing tag {name!r}; required: {listed(_TAG_NAMES)}")
            self._check_tag(f"{key}.{name}", value[name], example)
        texts = [value[name]["text"] for name in _TAG_NAMES]
        for name, text in zip(_TAG_NAMES, texts, strict=True):
            if texts.count(text) > 1:
                raise UserError(f"{self._where(f'{key}.{name}')}: the text {text!r} is used by more than one tag")
        return Tags.from_config(value)

    def _check_tag(self, key: str, tag: Any, example: str) -> None:
        where = self._where(key)
        if not isinstance(tag, Mapping):
            raise UserError(f"{where}: must be an object such as {example}, not {_kind(tag)}")
        for name in tag:
            if name not in ("text", "num_occur"):
                near = did_you_mean(name, ("text", "num_occur"))
                raise UserError(f"{where}: unknown key {name!r}; allowed: text, num_occur.{near}")
        text, count = tag.get("text"), tag.get("num_occur", 1)
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"{where}: 'text' must be text that is not empty, not {text!r}; for example {example}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UserError(f"{where}: 'num_occur' must be a whole number of at least 1, not {count!r}")


def _kind(value: Any) -> str:
    """A JSON value's type in JSON's own words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


Messages = Sequence[Mapping[str, str]]


class Conversation:
    """A template bound to a tokenizer.

    A chat template that knows no system role (it refuses one, or leaves it out) gets the system message at the start
    of the user's turn.

    Attributes:
        tags: the response's tags.
        stop_ids: tokens that end a response.
        stop_strings: texts that end a response.
        end_of_assistant: text that closes the assistant's turn.
        system_in_user: whether the system message stands in the user's turn.

    Raises:
        UserError: the tokenizer has no chat template and the template none either, the chat template can't be
            rendered, or a stop id is not in the vocabulary.
    """

    def __init__(self, template: ConversationTemplate, tokenizer: "PreTrainedTokenizerBase") -> None:
        self.template, self.tokenizer = template, tokenizer
        self.tags, self.stop_strings = template.tags, template.stop_strings
        self.stop_ids = _resolve_stop_ids(template, tokenizer)
        self._chat_template = _resolve_chat_template(template, tokenizer)
        self.end_of_assistant = template.end_of_assistant or (
            tokenizer.decode([self.stop_ids[0]], skip_special_tokens=False) if self.stop_ids else ""
        )
        self.system_in_user = False
        self.system_in_user = bool(template.system_message) and not self._knows_system_role()
        self._try_render(self.messages("probe"))

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
        """The text of a conversation, as the chat template writes it."""
        text = self.tokenizer.apply_chat_template(
            [dict(message) for message in messages],
            chat_template=self._chat_template,
            add_generation_prompt=add_generation_prompt,
            tokenize=False,
        )
        assert isinstance(text, str)
        return text

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

    def format_response(self, thought: str, answer: str) -> str:
        """A response in the template's format."""
        t = self.tags
        return f"{t.think_start.text}{thought}{t.think_end.text}{t.answer_start.text}{answer}{t.answer_end.text}"

    def _knows_system_role(self) -> bool:
        """Whether the chat template renders a system message (some refuse it, some leave it out)."""
        try:
            text = self.prompt_text("probe")
        except (TemplateError, TypeError, ValueError):
            return False
        return self.template.system_message.strip() in text

    def _try_render(self, messages: Messages) -> None:
        try:
            self.render(messages, add_generation_prompt=True)
        except (TemplateError, TypeError, ValueError) as error:
            raise UserError(
                f"conversation template {self.template.source}, key 'chat_template': can't be rendered with the tokenizer "
                f"{self.name}: {type(error).__name__}: {error}"
            ) from error


def _resolve_chat_template(template: ConversationTemplate, tokenizer: "PreTrainedTokenizerBase") -> str | None:
    """Jinja text, or None where the tokenizer's own is to be used."""
    given, where = template.chat_template, f"conversation template {template.source}, key 'chat_template'"
    if given is None:
        if not tokenizer.chat_template:
            others = [name for name in template_names() if name != "generic"]
            raise UserError(
                f"{where}: asks for the tokenizer's own chat template, and {tokenizer.name_or_path or 'the tokenizer'} has "
                f"none; use a template that brings one ({listed(others)}; `plain` suits base models) or give jinja text"
            )
        return None
    if "{{" in given or "{%" in given:
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


def _resolve_stop_ids(template: ConversationTemplate, tokenizer: "PreTrainedTokenizerBase") -> tuple[int, ...]:
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
