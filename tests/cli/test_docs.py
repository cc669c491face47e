"""The table in docs/command_line.md has every command."""

import re
from pathlib import Path

from rlvr.cli.commands import COMMANDS

TEXT = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()


def test_every_command_is_in_the_table() -> None:
    named = set(re.findall(r"`rlvr ([a-z-]+)`", TEXT.split("## Help")[0]))
    assert named == set(COMMANDS)
