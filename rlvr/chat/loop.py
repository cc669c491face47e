"""The loops of a chat: a person at a terminal, who may err and stop an answer; or a pipe with a question a line."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from rlvr.chat.commands import Quit, run_command
from rlvr.chat.screen import Screen
from rlvr.chat.stream import PartMarker
from rlvr.chat.talk import Answer, Talk
from rlvr.chat.verdict import Judge
from rlvr.errors import UserError

INTERRUPTED = 130


class Chat:
    """A talk, its judge, and where it is shown."""

    def __init__(self, talk: Talk, judge: Judge, screen: Screen) -> None:
        self.talk, self.judge, self.screen = talk, judge, screen

    def at_terminal(self) -> None:
        """Read lines from the user until /quit or Ctrl-D. Ctrl-C stops an answer, and at the prompt drops the line."""
        with suppress(ImportError):
            import readline  # noqa: F401  gives input() line editing and history
        while True:
            try:
                self.take(input("> "))
            except (EOFError, Quit):
                return
            except UserError as error:
                self.screen.mistake(str(error))
            except KeyboardInterrupt:
                self.screen.end()
                self.screen.note("/quit or Ctrl-D ends")

    def on_lines(self, lines: Iterable[str]) -> None:
        """Answer each line; a command's mistake ends it.

        Raises:
            UserError: see `take`.
        """
        try:
            for line in lines:
                answer = self.take(line)
                if answer is not None and answer.stopped:
                    raise SystemExit(INTERRUPTED)
        except Quit:
            return
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None

    def take(self, line: str) -> Answer | None:
        """Answer a question or do a command. Empty lines are nothing.

        Raises:
            UserError: a command that there is not, a conversation that is too long, or a reward function that fails.
            Quit: the user has had enough.
        """
        line = line.strip()
        if line.startswith("/") and not line.startswith("//"):
            gold = self.talk.gold
            run_command(self.talk, line, self.screen.note)
            if self.talk.gold not in (None, gold) and self.talk.last is not None:
                self._judge(self.talk.last)
            return None
        question = line.removeprefix("/")
        return self._answer(question) if question else None

    def _answer(self, question: str) -> Answer:
        marker = PartMarker(self.talk.conversation.tags, self.talk.begins_thinking())

        def show(text: str, last: bool = False) -> None:
            for kind, part in marker.feed(text, last):
                self.screen.part(kind, part)

        answer = self.talk.ask(question, show)
        show("", last=True)
        self.screen.end()
        if answer.stopped:
            self.screen.note(f"(stopped after {answer.tokens} tokens)")
        elif not answer.sample.finished:
            self.screen.note(f"(cut at {answer.tokens} tokens: /max_new_tokens N)")
        self._judge(answer)
        return answer

    def _judge(self, answer: Answer) -> None:
        self.screen.verdicts(self.judge.verdicts(replace(answer.sample, gold=self.talk.gold)))
