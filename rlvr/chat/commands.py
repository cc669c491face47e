"""What one can say to the chat itself: lines that begin with `/`. A new command is a line of the table."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from rlvr.chat.talk import Talk
from rlvr.errors import UserError
from rlvr.suggest import did_you_mean, listed

Say = Callable[[str], None]


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        argument: what follows its name, for the help; "" = nothing.
        text: one line of help.
        act: does it; gets the talk, the rest of the line, and something that tells the user.
    """

    argument: str
    text: str
    act: Callable[[Talk, str, Say], None]


class Quit(Exception):
    """The user has had enough."""


def run_command(talk: Talk, line: str, say: Say) -> None:
    """Do what a line that begins with `/` says.

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
    command.act(talk, rest, say)


def _gold(talk: Talk, rest: str, say: Say) -> None:
    talk.gold = rest or None
    say(f"answers are compared with {rest}" if rest else "answers are not compared")


def _system(talk: Talk, rest: str, say: Say) -> None:
    talk.instruct(rest)
    say("new system message, new conversation" if rest else "no system message, new conversation")


def _reset(talk: Talk, rest: str, say: Say) -> None:
    talk.reset()
    say("new conversation")


def _seed(talk: Talk, rest: str, say: Say) -> None:
    talk.reseed(int(_number("seed", rest, 0, whole=True)))


def _temperature(talk: Talk, rest: str, say: Say) -> None:
    value = _number("temperature", rest, 0)
    whole = replace(talk.sampling, top_k=0, top_p=1.0)  # greedy answers take the likeliest token of all
    talk.sampling = replace(talk.sampling if value else whole, temperature=value)


def _max_new_tokens(talk: Talk, rest: str, say: Say) -> None:
    talk.sampling = replace(talk.sampling, max_new_tokens=int(_number("max_new_tokens", rest, 1, whole=True)))


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


def _quit(talk: Talk, rest: str, say: Say) -> None:
    raise Quit


def _help(talk: Talk, rest: str, say: Say) -> None:
    width = max(len(f"/{name} {command.argument}") for name, command in COMMANDS.items())
    for name, command in COMMANDS.items():
        say(f"{f'/{name} {command.argument}':<{width}}  {command.text}")


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
