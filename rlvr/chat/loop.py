"""`ChatLoop`: questions and `/` commands, from a person at a terminal, who may err and stop an answer, or a line at a time from a pipe."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from rlvr.chat.screen import Screen
from rlvr.chat.session import Answer, AnswerScorer, ChatSession
from rlvr.chat.stream import TagSplitter
from rlvr.errors import UserError, did_you_mean, listed

Notify = Callable[[str], None]
"""Tells the user a line."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


class Quit(Exception):
    """The user asked to end the chat."""


class ChatLoop:
    """A session, what scores its answers, and where both are shown."""

    def __init__(self, session: ChatSession, scorer: AnswerScorer, screen: Screen) -> None:
        self.session, self.scorer, self.screen = session, scorer, screen

    def run_at_terminal(self) -> None:
        """Read lines from the user until /quit or Ctrl-D. Ctrl-C stops an answer, and at the prompt drops the line. A mistake is
        told, and the chat goes on."""
        with suppress(ImportError):
            import readline  # noqa: F401  gives input() line editing and history
        while True:
            try:
                self.handle_line(input("> "))
            except (EOFError, Quit):
                return
            except UserError as error:
                self.screen.error(str(error))
            except KeyboardInterrupt:
                self.screen.end()
                self.screen.note("/quit or Ctrl-D ends")

    def run_on_lines(self, lines: Iterable[str]) -> None:
        """Answer each line. A mistake ends it: nobody is there to correct it.

        Raises:
            UserError: see `handle_line`.
        """
        try:
            for line in lines:
                answer = self.handle_line(line)
                if answer is not None and answer.stopped:
                    raise SystemExit(INTERRUPTED)
        except Quit:
            return
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None

    def handle_line(self, line: str) -> Answer | None:
        """Answer a question or run a command; empty lines are passed over.

        Raises:
            UserError: an unknown command, a conversation that is too long, or a reward function that fails.
            Quit: it was /quit.
        """
        line = line.strip()
        if line.startswith("/") and not line.startswith("//"):
            gold = self.session.gold
            run_command(self.session, line, self.screen.note)
            if self.session.gold not in (None, gold) and self.session.last is not None:
                self._show_scores(self.session.last)
            return None
        question = line.removeprefix("/")
        return self._answer(question) if question else None

    def _answer(self, question: str) -> Answer:
        splitter = TagSplitter(self.session.conversation.tags, self.session.prompt_opens_thinking())

        def show(text: str, last: bool = False) -> None:
            for kind, part in splitter.feed(text, last):
                self.screen.part(kind, part)

        answer = self.session.ask(question, show)
        show("", last=True)
        self.screen.end()
        if answer.stopped:
            self.screen.note(f"(stopped after {answer.tokens} tokens)")
        elif not answer.sample.finished:
            self.screen.note(f"(cut at {answer.tokens} tokens: /max_new_tokens N)")
        self._show_scores(answer)
        return answer

    def _show_scores(self, answer: Answer) -> None:
        self.screen.scores(self.scorer.score(replace(answer.sample, gold=self.session.gold)))


# The `/` commands.


@dataclass(frozen=True)
class Command:
    """A `/` command.

    Attributes:
        argument: its argument's name, for the help; "" = it takes none.
        text: one line of help.
        act: does it; gets the session, the rest of the line, and `Notify`.
    """

    argument: str
    text: str
    act: Callable[[ChatSession, str, Notify], None]


def run_command(session: ChatSession, line: str, notify: Notify) -> None:
    """Run the command of a line that begins with `/`.

    Raises:
        UserError: there is no such command, or its argument is wrong.
        Quit: it was /quit.
    """
    name, _, rest = line[1:].strip().partition(" ")
    if name not in COMMANDS:
        raise UserError(
            f"unknown command /{name}.{did_you_mean(name, COMMANDS)} There are: {listed(f'/{known}' for known in COMMANDS)}. "
            "A question that begins with / is written with //"
        )
    command, rest = COMMANDS[name], rest.strip()
    if rest and not command.argument:
        raise UserError(f"/{name} takes nothing behind it, not {rest!r}")
    command.act(session, rest, notify)


def _gold(session: ChatSession, rest: str, notify: Notify) -> None:
    session.gold = rest or None
    notify(f"answers are compared with {rest}" if rest else "answers are not compared")


def _system(session: ChatSession, rest: str, notify: Notify) -> None:
    session.set_system_message(rest)
    notify("new system message, new conversation" if rest else "no system message, new conversation")


def _reset(session: ChatSession, rest: str, notify: Notify) -> None:
    session.reset()
    notify("new conversation")


def _seed(session: ChatSession, rest: str, notify: Notify) -> None:
    session.reseed(int(_number("seed", rest, 0, whole=True)))


def _temperature(session: ChatSession, rest: str, notify: Notify) -> None:
    value = _number("temperature", rest, 0)
    whole = replace(session.sampling, top_k=0, top_p=1.0)  # greedy answers take the likeliest token of all
    session.sampling = replace(session.sampling if value else whole, temperature=value)


def _max_new_tokens(session: ChatSession, rest: str, notify: Notify) -> None:
    session.sampling = replace(session.sampling, max_new_tokens=int(_number("max_new_tokens", rest, 1, whole=True)))


def _number(name: str, text: str, least: int, whole: bool = False) -> float:
    try:
        value = int(text) if whole else float(text)
    except ValueError:
        value = -1
    if not least <= value < float("inf"):
        kind = "a whole number" if whole else "a number"
        given = f"/{name} {text}".rstrip()
        raise UserError(f"{given}: give {kind} from {least}")
    return value


def _quit(session: ChatSession, rest: str, notify: Notify) -> None:
    raise Quit


def _help(session: ChatSession, rest: str, notify: Notify) -> None:
    width = max(len(f"/{name} {command.argument}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        notify(f"{f'/{name} {command.argument}':<{width}}  {command.text}")


COMMANDS = {
    "gold": Command("ANSWER", "show the verdict on this answer and later ones; without ANSWER no more", _gold),
    "system": Command("TEXT", "another system message; without TEXT none. Begins anew", _system),
    "reset": Command("", "begin anew", _reset),
    "seed": Command("N", "draw from here on as if the conversation began with this seed", _seed),
    "temperature": Command("X", "of sampling; 0 is greedy", _temperature),
    "max_new_tokens": Command("N", "most tokens of an answer", _max_new_tokens),
    "help": Command("", "this", _help),
    "quit": Command("", "end (or Ctrl-D)", _quit),
}
