"""How a chat is shown: with colours on a terminal, as plain text elsewhere. Text of the model is made visible first."""

import sys
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.text import Text

from rlvr.chat.verdict import Verdict
from rlvr.chat.visible import visible

STYLES = {"think": "dim", "answer": "bold green", "tag": "cyan dim", "other": ""}
VERDICTS = {"correct": "green", "wrong": "red"}


class Screen(Protocol):
    """Shows what is said."""

    def part(self, kind: str, text: str) -> None:
        """A piece of an answer, of this kind (see `PartMarker`)."""

    def end(self) -> None:
        """The answer is over."""

    def verdicts(self, found: Sequence[Verdict]) -> None:
        """What the answer is worth."""

    def note(self, text: str) -> None:
        """Something about the chat itself."""

    def mistake(self, text: str) -> None:
        """Something that the user did wrong."""


class ColourScreen:
    """For a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def part(self, kind: str, text: str) -> None:
        self._print(visible(text), STYLES[kind], end="")
        self.console.file.flush()

    def end(self) -> None:
        self._print("")

    def verdicts(self, found: Sequence[Verdict]) -> None:
        for one in found:
            self._print(f"{one.judge}: ", "dim", end="")
            self._print(visible(one.status), VERDICTS.get(one.status, "yellow"), end=" ")
            self._print(visible(one.text), "dim")

    def note(self, text: str) -> None:
        self._print(visible(text), "dim")

    def mistake(self, text: str) -> None:
        self._print(f"error: {visible(text)}", "red")

    def _print(self, text: str, style: str = "", end: str = "\n") -> None:
        # A Text is no markup; the terminal breaks lines itself, for a piece does not know where its line began.
        self.console.print(Text(text, style=style), end=end, soft_wrap=True, highlight=False)


class PlainScreen:
    """For pipes and files: answers and verdicts on the standard output, all else on the standard error."""

    def part(self, kind: str, text: str) -> None:
        print(visible(text), end="", flush=True)

    def end(self) -> None:
        print(flush=True)

    def verdicts(self, found: Sequence[Verdict]) -> None:
        for one in found:
            print(f"{one.judge}: {visible(one.status)} {visible(one.text)}".rstrip(), flush=True)

    def note(self, text: str) -> None:
        print(visible(text), file=sys.stderr)

    def mistake(self, text: str) -> None:
        print(f"error: {visible(text)}", file=sys.stderr)
