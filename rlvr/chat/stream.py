"""A response while it is generated: tokens become text (`TextStream`), and text is cut at its tags (`TagSplitter`).

transformers' `TextStreamer` was tried and left out: it holds text back until a space comes, so that responses without spaces, as
the built-in model's `<think>12+7=19</think><answer>19</answer>`, appear at their end only; nor does it know stop strings.
`tokenizers.decoders.DecodeStream` gives the same pieces as `TextStream`, but takes fast tokenizers only.
"""

from collections.abc import Callable, Iterable, Sequence

from rewards import Tags

UNFINISHED = "\ufffd"
"""The replacement character, which decoding gives for the first bytes of a character."""


class TextStream:
    """Turns tokens into text as they come; the pieces add up to what decoding all of them would give.

    A token is decoded together with those of the piece before it, for many tokenizers write a space or not by what came
    before.

    Args:
        decode: turns tokens into text.
        stops: texts that end a response: nothing after the first of them is passed on.

    Attributes:
        text: all that was passed on.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Iterable[str] = ()) -> None:
        self.decode, self.stops = decode, tuple(stops)
        self.text = ""
        self._ids: list[int] = []
        self._before, self._read = 0, 0
        self._ended = False

    def feed(self, token: int) -> str:
        """Take one more token. Returns the text that it completes; "" while it leaves a character unfinished."""
        self._ids.append(token)
        told = self.decode(self._ids[self._before : self._read])
        now = self.decode(self._ids[self._before :])
        if len(now) <= len(told) or now.endswith(UNFINISHED):
            return ""
        self._before, self._read = self._read, len(self._ids)
        return self._pass_on(now[len(told) :])

    def rest(self, whole: str) -> str:
        """The end of the whole response, which was held back so far."""
        missing = whole.removeprefix(self.text) if whole.startswith(self.text) else ""
        self.text += missing
        return missing

    def _pass_on(self, piece: str) -> str:
        if self._ended:
            return ""
        text = self.text + piece
        ends = [text.index(stop) + len(stop) for stop in self.stops if stop in text]
        self._ended = bool(ends)
        piece = text[len(self.text) : min(ends, default=len(text))]
        self.text += piece
        return piece


class TagSplitter:
    """Cuts a response into its parts while it comes: `think`, `answer`, `tag` and `other`. Tags may come in pieces.

    Args:
        tags: of the template.
        thinking: the prompt has opened the thinking.
    """

    def __init__(self, tags: Tags, thinking: bool = False) -> None:
        self._kinds = {
            tags.think_start.text: "think",
            tags.think_end.text: "other",
            tags.answer_start.text: "answer",
            tags.answer_end.text: "other",
        }
        self._kind = "think" if thinking else "other"
        self._held = ""

    def feed(self, text: str, last: bool = False) -> list[tuple[str, str]]:
        """The parts that are sure, as (kind, text); with `last` all that is left."""
        text, parts = self._held + text, list[tuple[str, str]]()
        while found := [(text.index(tag), -len(tag), tag) for tag in self._kinds if tag in text]:
            at, _, tag = min(found)
            parts += [(self._kind, text[:at]), ("tag", tag)]
            self._kind, text = self._kinds[tag], text[at + len(tag) :]
        kept = len(text) if last else len(text) - self._begun(text)
        self._held = text[kept:]
        return [(kind, part) for kind, part in (*parts, (self._kind, text[:kept])) if part]

    def _begun(self, text: str) -> int:
        """Length of the longest end of the text that a tag begins with."""
        longest = max(map(len, self._kinds)) - 1
        sizes = range(min(longest, len(text)), 0, -1)
        return next((n for n in sizes if any(tag.startswith(text[-n:]) for tag in self._kinds)), 0)
