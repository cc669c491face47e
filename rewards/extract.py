"""Where the answer stands in a response.

With tags: in the answer tag and nowhere else; a box inside it is opened. Without tags, the first of these that is there:
the last `\\boxed{...}`, what follows the last `####`, what follows the last "the answer is", the last number.
Reasoning between think tags never counts.
"""

import re

from rewards.tags import Tags

MAX_RESPONSE_CHARACTERS = 100_000
MAX_BOXES = 50

_BOX = re.compile(r"\\f?boxed\s*\{")
_HASHES = re.compile(r"####\s*([^\n]*)")
_SAYS = re.compile(r"(?:final answer|the answer|answer)\s*(?:is|:|=)\s*:?\s*([^\n]*)", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?%?")
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


def extract(response: str, tags: Tags | None = None) -> str | None:
    """The text of the answer, or None where there is none."""
    response = response[-MAX_RESPONSE_CHARACTERS:]
    if tags is not None:
        answer = tags.answer_of(response)
        return None if answer is None else unbox(answer).strip() or None
    return _untagged(_THINKING.sub(" ", response))


def unbox(text: str) -> str:
    """What the only box holds; the text itself without a box. Several different boxes are no answer."""
    boxes = boxed(text)
    if not boxes:
        return text
    return boxes[0] if len(set(boxes)) == 1 else ""


def boxed(text: str) -> list[str]:
    """The contents of every complete box, in order."""
    found: list[str] = []
    inside = 0  # a box within a box is part of it
    for match in list(_BOX.finditer(text))[-MAX_BOXES:]:
        content = _braced(text, match.end()) if match.start() >= inside else None
        if content is not None:
            found.append(content.strip())
            inside = match.end() + len(content)
    return found


def _braced(text: str, start: int) -> str | None:
    depth = 1
    for place in range(start, len(text)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return text[start:place]
    return None


def _untagged(text: str) -> str | None:
    boxes = boxed(text)
    if boxes:
        return boxes[-1] or None
    if found := _HASHES.findall(text):
        return found[-1].strip() or None
    if found := _SAYS.findall(text):
        said = found[-1].strip().rstrip(".")
        number = _NUMBER.search(said)
        return number[0] if number and not re.search(r"\bor\b|\bnot\b", said) else said or None
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else None
