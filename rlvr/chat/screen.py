"""How a chat is shown: with colours on a terminal (`ColourScreen`), as plain text elsewhere (`PlainScreen`).

Everything that a model, a function or the user wrote passes `escape_control_characters` first: it could steer the terminal.
"""

import sys
from collections.abc import Sequence
from typing import Protocol

from rich.console import Console
from rich.text import Text

from rlvr.chat.session import AnswerScore
from rlvr.errors import escape_control_characters

# rich's styles: of the kinds of `TagSplitter`, and of verdicts (yellow without an entry).
PART_STYLES = {"think": "dim", "answer": "bold green", "tag": "cyan dim", "other": ""}
STATUS_STYLES = {"correct": "green", "wrong": "red"}


class Screen(Protocol):
    """Where a chat is shown."""

    def part(self, kind: str, text: str) -> None:
        """Show a piece of an answer, of this kind (see `TagSplitter`)."""

    def end(self) -> None:
        """The answer is over."""

    def scores(self, found: Sequence[AnswerScore]) -> None:
        """Show what the answer is worth."""

    def note(self, text: str) -> None:
        """Show a line about the chat itself."""

    def error(self, text: str) -> None:
        """Show a mistake of the user."""


class ColourScreen:
    """For a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def part(self, kind: str, text: str) -> None:
        self._print(escape_control_characters(text), PART_STYLES[kind], end="")
        self.console.file.flush()

    def end(self) -> None:
        self._print("")

    def scores(self, found: Sequence[AnswerScore]) -> None:
        for one in found:
            self._print(f"{one.source}: ", "dim", end="")
            self._print(escape_control_characters(one.status), STATUS_STYLES.get(one.status, "yellow"), end=" ")
            self._print(escape_control_characters(one.reason), "dim")

    def note(self, text: str) -> None:
        self._print(escape_control_characters(text), "dim")

    def error(self, text: str) -> None:
        self._print(f"error: {escape_control_characters(text)}", "red")

    def _print(self, text: str, style: str = "", end: str = "\n") -> None:
        # A Text is no markup; the terminal breaks lines itself, for a piece does not know where its line began.
        self.console.print(Text(text, style=style), end=end, soft_wrap=True, highlight=False)


class PlainScreen:
    """For pipes and files: answers and verdicts on the standard output, all else on the standard error."""

    def part(self, kind: str, text: str) -> None:
        print(escape_control_characters(text), end="", flush=True)

    def end(self) -> None:
        print(flush=True)

    def scores(self, found: Sequence[AnswerScore]) -> None:
        for one in found:
            print(
                f"{one.source}: {escape_control_characters(one.status)} {escape_control_characters(one.reason)}".rstrip(),
                flush=True,
            )

    def note(self, text: str) -> None:
        print(escape_control_characters(text), file=sys.stderr)

    def error(self, text: str) -> None:
        print(f"error: {escape_control_characters(text)}", file=sys.stderr)
