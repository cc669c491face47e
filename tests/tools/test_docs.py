"""The commands in docs/command_line.md can be given, and its table has every command."""

import re
import shlex
from pathlib import Path

import pytest

from rlvr.tools.commands import COMMANDS

TEXT = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
LINES = re.findall(r"^    (rlvr .*)$", TEXT, re.MULTILINE)


def test_every_command_is_in_the_table() -> None:
    named = set(re.findall(r"`rlvr ([a-z-]+)`", TEXT.split("## Help")[0]))
    assert named == set(COMMANDS)


@pytest.mark.parametrize("line", LINES)
def test_the_commands_can_be_given(line: str, capsys) -> None:
    from rlvr.cli import main
    from rlvr.tools.evaluate import eval_parser

    words = shlex.split(line)[1:]
    if words[0] == "eval":
        assert eval_parser().parse_args(words[1:]).reward_functions
        return
    try:
        assert main(words) == 0
    except SystemExit as stop:
        assert stop.code == 0
    assert capsys.readouterr().out
