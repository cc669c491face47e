"""`Parser`: argparse with the habits of the whole command line: `-` and `_` alike, the nearest flag named, narrow help."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from rlvr.config.catalog import show
from rlvr.config.help import LEFT, WIDTH
from rlvr.errors import UserError, did_you_mean


class _Formatter(argparse.HelpFormatter):
    """100 columns, each flag with its default where it has one, as in the help of trees (`rlvr.config.help`)."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=LEFT, width=WIDTH)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = action.default
        if default is None or default is False or default in ([], argparse.SUPPRESS):
            return action.help
        return f"{action.help} [{show(default)}]"


class Parser(argparse.ArgumentParser):
    """For commands with a few flags of their own. Flags are declared with underscores; dashes are taken, too.

    Raises:
        UserError: (from `parse_args`) an unknown flag, with the nearest one that exists, a value that is none, or a
            value that is missing.
    """

    def __init__(self, **arguments: Any) -> None:
        usual: dict[str, Any] = {"formatter_class": _Formatter, "allow_abbrev": False}
        super().__init__(**(usual | arguments))

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """The values of the flags."""
        found, unknown = self.parse_known_args(args, namespace)
        self._refuse(unknown)
        return found

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """As argparse's, after `-` inside of flags has become `_`. Unknown flags are told before those that are missing."""
        words = [_underscored(word) for word in args or ()]
        if not any(isinstance(action, argparse._SubParsersAction) for action in self._actions):
            known = self._option_string_actions
            pairs = zip(args or (), words, strict=True)
            self._refuse([w for w, u in pairs if u.startswith("--") and u.partition("=")[0] not in known])
        return super().parse_known_args(words, namespace)

    def format_help(self) -> str:
        """As argparse's, with the short usage."""
        self.usage = f"{self.prog} {self._places()}[flags]".replace("%", "%%")
        return super().format_help()

    def _places(self) -> str:
        names = [str(a.metavar or a.dest) for a in self._actions if not a.option_strings]
        return "".join(f"{name} " for name in names)

    def error(self, message: str) -> NoReturn:
        """argparse's own mistakes, as ours."""
        raise UserError(f"{message}. `{self.prog} --help` lists all flags")

    def _refuse(self, unknown: Sequence[str]) -> None:
        if not unknown:
            return
        word = unknown[0].partition("=")[0]
        if not word.startswith("-"):
            raise UserError(f"{self.prog}: {word!r} is one argument too many; `{self.prog} --help` shows what it takes")
        near = did_you_mean(_underscored(word), self._option_string_actions)
        raise UserError(f"unknown flag {word}.{near} `{self.prog} --help` lists all flags")


def _underscored(word: str) -> str:
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return "--" + name[2:].replace("-", "_") + equals + value
