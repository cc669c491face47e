"""`rlvr completion SHELL`: a script that completes commands, flags and their values.

shtab writes it from an argparse parser; ours is made of what parsing and help read, so the script can't fall behind them.
"""

import argparse
from collections.abc import Iterator

import shtab

from rlvr.cli.commands import COMMANDS, Command
from rlvr.cli.parser import Parser
from rlvr.config.catalog import Flag, catalog

INSTALL = {
    "bash": 'eval "$(rlvr completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(rlvr completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "rlvr completion fish > ~/.config/fish/completions/rlvr.fish",
    "tcsh": "rlvr completion tcsh > ~/.rlvr.tcsh   # and in ~/.tcshrc: source ~/.rlvr.tcsh",
}
# shtab compares words with the flags as they are spelled; `--kl-c` is to find `--kl_coef`, too.
_BASH_DASHES = """
_rlvr() {
  local i
  for i in "${!COMP_WORDS[@]}"; do
    if [[ "${COMP_WORDS[i]}" == --* ]]; then local word="${COMP_WORDS[i]:2}"; COMP_WORDS[i]="--${word//-/_}"; fi
  done
  _shtab_rlvr
}
complete -o bashdefault -F _rlvr rlvr
"""


def completion_parser() -> Parser:
    """The flags of the command."""
    lines = "\n".join(f"  {shell:6} {how}" for shell, how in INSTALL.items())
    parser = Parser(
        prog="rlvr completion",
        description="Print a script that completes commands, flags and values. To install it:\n\n" + lines,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=sorted(INSTALL), help="which shell")
    return parser


def completion_command(argv: list[str]) -> None:
    """Print the script for a shell.

    Raises:
        UserError: another shell.
    """
    shell = completion_parser().parse_args(argv).shell
    print(shtab.complete(whole_parser(), shell) + (_BASH_DASHES if shell == "bash" else ""))


def whole_parser() -> argparse.ArgumentParser:
    """The whole command line as one parser, to be completed and not to parse with."""
    whole = argparse.ArgumentParser(prog="rlvr")
    whole.add_argument("--version", action="store_true", help="the version")
    commands = whole.add_subparsers()
    for name, command in COMMANDS.items():
        made = command.flags_or_tree()
        parents = [made] if isinstance(made, Parser) else []
        parser = commands.add_parser(name, help=command.text, parents=parents, add_help=not parents)
        if isinstance(made, type):
            _add_tree(parser, made, command)
        for action in _values(parser):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    return whole


def _add_tree(parser: argparse.ArgumentParser, tree: type, command: Command) -> None:
    for name in command.more:
        parser.add_argument(f"--{name}", action="store_true" if name != "config" else "store")
    for section in catalog(tree):
        for flag in section.flags:
            _add_flag(parser, flag)


def _add_flag(parser: argparse.ArgumentParser, flag: Flag) -> None:
    text = flag.text.split(". ")[0].replace("%", "%%")
    if flag.is_switch:
        for name in (flag.name, f"no_{flag.name}"):
            parser.add_argument(f"--{name}", action="store_true", help=text)
    else:
        parser.add_argument(f"--{flag.name}", choices=flag.choices or None, help=text)


def _values(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The actions that take a value of any kind: files are offered for them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from _values(part)
        elif action.choices is None and action.nargs != 0:
            yield action
