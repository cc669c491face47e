"""`ConversationTemplate`: a JSON file that says how a problem becomes a prompt, what the answer tags are, and what ends a response.

The keys of `templates/*.json`:

- `chat_template`: jinja text, null (the tokenizer's own), or the name or path of a tokenizer to take it from;
- `system_message`: what tells the model of the response format (null or "": none);
- `stop_ids`: token ids or token strings that end a response; null: the tokenizer's end token;
- `response_format_tags`: `think_start`, `think_end`, `answer_start`, `answer_end`, each with `text` and
  `num_occur`, how often a response holds it (0: the prompt already ends in it, as DeepSeek-R1's does in `<think>`); without this key,
  `<think>`, `</think>`, `<answer>`, `</answer>`, each once (optional). `call_start` and `call_end`, around what a model asks of a tool, are
  `<call>` and `</call>` unless they stand there too;
- `stop_strings`: texts that end a response (optional);
- `end_of_assistant`: text that closes the assistant's turn; null: that of the first stop id (optional);
- `description`: one line for people (optional).

Other keys, such as those of ColossalChat's files that we have no use for, are not read, and named where the template is used; one that
looks like a misspelt key is refused.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewards.tags import CALL_NAMES, Tags
from rewards.tags import NAMES as TAG_NAMES
from rlvr.config.files import read_json
from rlvr.errors import UserError, did_you_mean, listed

_REQUIRED = ("chat_template", "system_message", "stop_ids")
_OPTIONAL = ("response_format_tags", "stop_strings", "end_of_assistant", "description")
AS_IS = "as_is"
"""Shipped template that leaves prompts as they are."""


def template_dir() -> Path:
    """Folder of the shipped templates: `rlvr/templates` where installed from a wheel, `templates` in the checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def template_names() -> list[str]:
    """Names of the shipped templates."""
    return sorted(path.stem for path in template_dir().glob("*.json"))


@dataclass(frozen=True)
class ConversationTemplate:
    """A template file, validated. The fields are the file's keys; `source` is where it came from, for messages.

    Attributes:
        chat_template: jinja text, the name or path of a tokenizer, or None (the tokenizer's own).
        system_message: "" = none.
        stop_ids: token ids and token strings; None = the tokenizer's end token.
        tags: the key `response_format_tags`, or the usual ones.
        unread: keys of the file that mean nothing to us.
    """

    source: str
    chat_template: str | None
    system_message: str
    stop_ids: tuple[int | str, ...] | None
    tags: Tags
    stop_strings: tuple[str, ...] = ()
    end_of_assistant: str | None = None
    description: str = ""
    unread: tuple[str, ...] = ()

    @property
    def names_tokenizer(self) -> bool:
        """True if the chat template is that of a tokenizer which it names, and no jinja text."""
        return self.chat_template is not None and "{{" not in self.chat_template and "{%" not in self.chat_template

    @classmethod
    def load(cls, name_or_path: str) -> "ConversationTemplate":
        """Read a shipped template by name, or a JSON file by path.

        Raises:
            UserError: neither a shipped name nor a file, not JSON, or a key that is unknown, missing or wrong.
        """
        path = Path(name_or_path).expanduser()
        if name_or_path in template_names():
            path = template_dir() / f"{name_or_path}.json"
        elif not path.exists():
            raise UserError(
                f"conversation template {name_or_path!r} is neither a shipped template ({listed(template_names())}) nor "
                f"a JSON file.{did_you_mean(name_or_path, template_names())}"
            )
        try:
            config = read_json(path)
        except OSError as error:
            raise UserError(f"conversation template {path}: {error.strerror}") from None
        except json.JSONDecodeError as error:
            raise UserError(f"conversation template {path}:{error.lineno}: not valid JSON: {error.msg}") from None
        except ValueError as error:
            raise UserError(f"conversation template {path}: not usable JSON: {error}") from None
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
            unread=check.unread,
        )

    def to_config(self) -> dict[str, Any]:
        """The contents of a file, as plain JSON, of which `from_config` makes the same template."""
        return {
            "chat_template": self.chat_template,
            "system_message": self.system_message,
            "stop_ids": None if self.stop_ids is None else list(self.stop_ids),
            "response_format_tags": self.tags.to_config(),
            "stop_strings": list(self.stop_strings),
            "end_of_assistant": self.end_of_assistant,
            "description": self.description,
        }


class _Keys:
    """The keys of a template file, read with messages that name file and key."""

    def __init__(self, config: Any, source: str) -> None:
        self.source = source
        if not isinstance(config, Mapping):
            raise UserError(f"{self._where()}: must hold a JSON object, not {_kind(config)}")
        self.config = config
        known = (*_REQUIRED, *_OPTIONAL)
        self.unread = tuple(str(key) for key in config if key not in known)
        self._refuse_unknown([key for key in self.unread if did_you_mean(key, known)], None, known)
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
        if key not in self.config:
            return Tags.default()
        value = self.config[key]
        if isinstance(value, Mapping):
            self._refuse_unknown(value, key, (*TAG_NAMES, *CALL_NAMES))
            for name, tag in value.items():
                if isinstance(tag, Mapping):
                    self._refuse_unknown(tag, f"{key}.{name}", ("text", "num_occur"))
        try:
            return Tags.from_config(value)
        except UserError as error:
            raise UserError(f"{self._where()}: {error}") from None

    def _refuse_unknown(self, found: Iterable[str], key: str | None, known: Sequence[str]) -> None:
        for name in found:
            if name not in known:
                raise UserError(
                    f"{self._where(key)}: unknown key {name!r}; allowed: {listed(known)}.{did_you_mean(name, known)}"
                )


def _kind(value: Any) -> str:
    """A JSON value's type in JSON's own words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), type(value).__name__)
