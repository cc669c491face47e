"""The response format: think and answer tags, as the conversation template names them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from rewards.errors import UserError

NAMES = ("think_start", "think_end", "answer_start", "answer_end")
CALL_NAMES = ("call_start", "call_end")
"""Tags around what a model asks of a tool; a template need not name them."""


@dataclass(frozen=True)
class Tag:
    """One tag and how often a well-formed response holds it."""

    text: str
    num_occur: int = 1


@dataclass(frozen=True)
class Tags:
    """The tags of a template: of thought and answer, and around calls of a tool. Nothing about them is fixed: every check goes through
    this class."""

    think_start: Tag
    think_end: Tag
    answer_start: Tag
    answer_end: Tag
    call_start: Tag = Tag("<call>", 0)
    call_end: Tag = Tag("</call>", 0)

    @classmethod
    def default(cls) -> "Tags":
        """<think> ... </think> <answer> ... </answer>, each once."""
        return cls(Tag("<think>"), Tag("</think>"), Tag("<answer>"), Tag("</answer>"))

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Tags":
        """From a template's `response_format_tags`: name -> {"text": ..., "num_occur": ...}.

        Raises:
            UserError: a tag is missing, unknown, empty, doubled, or of the wrong type.
        """
        if not isinstance(config, Mapping):
            raise UserError(f"response_format_tags must map {', '.join(NAMES)} to tags, not {config!r}")
        known = (*NAMES, *CALL_NAMES)
        missing, unknown = [n for n in NAMES if n not in config], [n for n in config if n not in known]
        if missing or unknown:
            raise UserError(
                f"response_format_tags: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}; needed are {', '.join(NAMES)}, "
                f"possible {', '.join(CALL_NAMES)}"
            )
        tags = {name: _tag(name, config[name]) for name in known if name in config}
        if len({tag.text for tag in tags.values()}) != len(tags):
            raise UserError(f"response_format_tags: two tags have the same text: {[t.text for t in tags.values()]}")
        return cls(**tags)

    def answer_of(self, response: str) -> str | None:
        """The text between the last answer tags after the thinking; None where there is no complete pair.

        An answer tag inside the thinking is part of the thinking, and a response with more answers than the template
        asks for, or that ends its thinking twice, has none: several answers are not paid for one of them.
        """
        rest = response
        if rest.count(self.think_end.text) > max(1, self.think_end.num_occur):
            return None
        if self.think_end.text in rest:
            rest = rest.rsplit(self.think_end.text, 1)[1]
        elif self.think_start.text in rest:
            return None
        start, end = self.answer_start, self.answer_end
        if rest.count(start.text) > max(1, start.num_occur) or rest.count(end.text) > max(1, end.num_occur):
            return None
        if start.text not in rest:
            return None
        inside = rest.rsplit(start.text, 1)[1]
        return inside.split(end.text, 1)[0].strip() if end.text in inside else None

    def to_config(self) -> dict[str, dict[str, Any]]:
        """What `from_config` makes the same tags of; tags of calls where they are not the usual ones."""
        others = [name for name in CALL_NAMES if getattr(self, name) != getattr(Tags, name)]
        return {name: asdict(getattr(self, name)) for name in (*NAMES, *others)}

    def calls_of(self, text: str) -> list[str]:
        """What stands between the tags of calls, in order; of a call that is not closed, all that follows.

        >>> Tags.default().calls_of("so <call>1+2</call> and <call> 3*4")
        ['1+2', '3*4']
        """
        parts = text.split(self.call_start.text)[1:]
        return [part.split(self.call_end.text, 1)[0].strip() for part in parts]

    def is_well_formed(self, response: str) -> bool:
        """Each tag as often as the template says, in order, and only white space outside of them."""
        tags = (self.think_start, self.think_end, self.answer_start, self.answer_end)
        if any(response.count(tag.text) != tag.num_occur for tag in tags):
            return False
        places = [response.find(tag.text) for tag in tags if tag.num_occur]
        if places != sorted(places):
            return False
        end = (
            response.rfind(self.answer_end.text) + len(self.answer_end.text)
            if self.answer_end.num_occur
            else len(response)
        )
        start = response.find(self.think_start.text) if self.think_start.num_occur else 0
        between = ""
        if self.think_end.num_occur and self.answer_start.num_occur:
            after_thinking = response.rfind(self.think_end.text) + len(self.think_end.text)
            between = response[after_thinking : response.find(self.answer_start.text)]
        return not (response[:start].strip() or response[end:].strip() or between.strip())


def _tag(name: str, config: Any) -> Tag:
    if isinstance(config, str):
        config = {"text": config}
    text = config.get("text") if isinstance(config, Mapping) else None
    times = config.get("num_occur", 1) if isinstance(config, Mapping) else None
    if not isinstance(text, str) or not text.strip():
        raise UserError(
            f'response_format_tags.{name} must look like {{"text": "<think>", "num_occur": 1}}, not {config!r}'
        )
    if not isinstance(times, int) or isinstance(times, bool) or times < 0:
        raise UserError(f"response_format_tags.{name}.num_occur must be a whole number from 0, not {times!r}")
    return Tag(text, times)
