"""`rlvr completion SHELL`: a script that completes commands, flags and their values.

Written from the same tables that parsing and help read, so it can't fall behind them, and without a package more.
"""

import argparse
from collections.abc import Mapping

from rlvr.tools.commands import COMMANDS, Option
from rlvr.tools.parser import Parser

INSTALL = {
    "bash": 'eval "$(rlvr completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(rlvr completion zsh)"   # in ~/.zshrc, after compinit',
    "fish": "rlvr completion fish > ~/.config/fish/completions/rlvr.fish",
    "tcsh": "rlvr completion tcsh > ~/.rlvr.tcsh   # and in ~/.tcshrc: source ~/.rlvr.tcsh",
}


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
    print({"bash": _bash, "zsh": _zsh, "fish": _fish, "tcsh": _tcsh}[shell](commands()), end="")


def commands() -> Mapping[str, tuple[str, list[Option]]]:
    """Command -> its one line, and its flags."""
    return {name: (command.text, command.options()) for name, command in COMMANDS.items()}


def _bash(table: Mapping[str, tuple[str, list[Option]]]) -> str:
    flags = "".join(
        f"    {name}) flags={_quoted(o.flag for o in options)} ;;\n" for name, (_, options) in table.items()
    )
    values = "".join(
        f"    {name}:{option.flag}) values={_quoted(option.values)} ;;\n"
        for name, (_, options) in table.items()
        for option in options
        if option.values
    )
    return f"""# completion of rlvr for bash
_rlvr() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} flags="" values=""
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {_quoted(["--help", "--version", *table])} -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{flags}  esac
  case "${{COMP_WORDS[1]}}:${{before//-/_}}" in
{values.replace(":--", ":__")}  esac
  if [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  elif [[ "$word" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "${{word:0:2}}$(tr - _ <<< "${{word:2}}")"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _rlvr rlvr
"""


def _zsh(table: Mapping[str, tuple[str, list[Option]]]) -> str:
    def described(name: str, text: str) -> str:
        return f"      {_single(name + ':' + text)}\n"

    names = "".join(described(name, text) for name, (text, _) in table.items())
    cases = ""
    for name, (_, options) in table.items():
        flags = "".join(described(option.flag, option.text) for option in options)
        values = "".join(
            f"      {option.flag}) compadd -- {' '.join(option.values)}; return ;;\n"
            for option in options
            if option.values
        )
        cases += f"    {name})\n      case ${{words[CURRENT-1]}} in\n{values}      esac\n      given=(\n{flags}      )\n      ;;\n"
    return f"""#compdef rlvr
_rlvr() {{
  local -a given
  if (( CURRENT == 2 )); then
    given=(
{names}    )
    _describe command given
    return
  fi
  case ${{words[2]}} in
{cases}  esac
  if [[ ${{words[CURRENT]}} == -* ]]; then _describe flag given; else _files; fi
}}
compdef _rlvr rlvr
"""


def _fish(table: Mapping[str, tuple[str, list[Option]]]) -> str:
    lines = ["# completion of rlvr for fish"]
    for name, (text, options) in table.items():
        lines.append(f"complete -c rlvr -f -n __fish_use_subcommand -a {name} -d {_single(text)}")
        for option in options:
            values = f" -x -a {_single(' '.join(option.values))}" if option.values else ""
            lines.append(
                f"complete -c rlvr -n '__fish_seen_subcommand_from {name}' -l {option.flag[2:]} -d {_single(option.text)}{values}"
            )
    return "\n".join(lines) + "\n"


def _tcsh(table: Mapping[str, tuple[str, list[Option]]]) -> str:
    """tcsh completes by the word before and by what a word begins with; it knows no flags of one command alone."""
    options = {option.flag: option.values for _, found in table.values() for option in found}
    values = " ".join(f"'n/{flag}/({' '.join(values)})/'" for flag, values in options.items() if values)
    names = " ".join(flag[2:] for flag in options)
    return f"# completion of rlvr for tcsh\ncomplete rlvr 'p/1/({' '.join(table)})/' {values} 'c/--/({names})/'\n"


def _quoted(words: object) -> str:
    return '"' + " ".join(words) + '"'  # type: ignore[arg-type]


def _single(text: str) -> str:
    """In single quotes, for every shell here: quotes and what a colon or bracket means to zsh are left out."""
    return "'" + text.replace("'", "").replace("[", "(").replace("]", ")").replace("`", "") + "'"
