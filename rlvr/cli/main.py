"""`main`: the entry point of the command line `rlvr`: finds the command, runs it, and turns its outcome into an exit status.

The table of commands is in `rlvr/cli/commands.py`. A `UserError` becomes one message and status 2; any other exception is a bug
and keeps its traceback.
"""

import os
import sys
from collections.abc import Sequence

from rlvr.boost import launcher  # noqa: F401  notes who that is, before torch is loaded
from rlvr.cli.commands import COMMANDS, Run
from rlvr.errors import UserError, did_you_mean, escape_control_characters, listed

USER_ERROR = 2
WIDTH = max(map(len, COMMANDS))
USAGE = "\n".join(
    [
        "usage: rlvr COMMAND [flags]",
        "",
        *(f"  rlvr {name:<{WIDTH}}  {command.text}" for name, command in COMMANDS.items()),
        "",
        "rlvr COMMAND --help shows its flags; rlvr --version the version.",
        "",
    ]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command `rlvr`. Returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    name = words[0] if words else "--help"
    if name in ("-h", "--help", "help"):
        return run(_help, words[1:])
    if name in ("-V", "--version"):
        return run(_version, [])
    if name.replace("-", "_") == "__print_completion":  # the flag of other tools
        name = "completion"
    if name not in COMMANDS:
        return run(_unknown, [name])
    return run(COMMANDS[name].load(), words[1:])


def run(command: Run, argv: list[str]) -> int:
    """Run a command; a user's mistake becomes one message and status 2, an interruption says how to go on."""
    try:
        command(argv)
        sys.stdout.flush()
    except UserError as error:
        from rlvr.config.secrets import redacted  # with all settings; `rlvr --help` does without them

        print(f"error: {escape_control_characters(redacted(str(error)))}", file=sys.stderr)
        return USER_ERROR
    except KeyboardInterrupt:
        print("stopped at once; go on from the last checkpoint with --resume", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `rlvr train --help | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _help(words: list[str]) -> None:
    """`rlvr help` and `rlvr help COMMAND ...`."""
    if words and not words[0].startswith("-"):
        if words[0] not in COMMANDS:
            _unknown(words)
        COMMANDS[words[0]].load()(["--help", *words[1:]])
    print(USAGE, end="")


def _version(words: list[str]) -> None:
    from rlvr import __version__

    print(f"rlvr {__version__}")


def _unknown(words: list[str]) -> None:
    near = did_you_mean(words[0], COMMANDS)
    raise UserError(f"unknown command {words[0]!r}.{near} There are: {listed(COMMANDS)}")
