"""The page "Every setting" has every setting of every command, as the trees and parsers have it."""

import re
from argparse import ArgumentParser
from dataclasses import fields

import pytest

from docs.generate.settings_page import TREES, _other_commands, page, readers_of
from rlvr.cli.commands import COMMANDS
from rlvr.cli.parser import Parser
from rlvr.config import Config
from rlvr.config.catalog import catalog

PAGE = page()
ENTRIES = dict(re.findall(r"^### `--(\w+)` \{ #\w+ \}\n\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
ALL = {flag.name for tree, _ in TREES.values() for section in catalog(tree) for flag in section.flags}


def test_every_setting_has_one_entry() -> None:
    anchors = re.findall(r"\{ #([\w-]+) \}", PAGE)
    assert set(ENTRIES) == ALL and len(anchors) == len(set(anchors))


@pytest.mark.parametrize("command", TREES)
def test_an_entry_names_the_commands_that_read_it_and_says_what_help_says(command: str) -> None:
    tree, of_tiny = TREES[command]
    for section in catalog(tree):
        for flag in section.flags:
            entry = ENTRIES[flag.name]
            assert f"`{command}`" in entry.split("read by")[1].splitlines()[0]
            assert all(f"`{choice}`" in entry for choice in flag.choices if flag.metavar == "NAME")
            assert all(f"`--{alias}`" in entry for alias in flag.aliases)
            assert flag.text.split()[0] in entry
            assert (flag.name in of_tiny.get(section.name, {})) <= ("built-in" in entry)


def test_defaults_that_differ_between_commands_are_told_apart() -> None:
    assert {reader.command for reader in readers_of("lr")} == {"train", "sft", "reward-model"}
    assert "`9e-06`" in ENTRIES["lr"] and "`2e-05`" in ENTRIES["lr"] and "built-in `0.0003`" in ENTRIES["lr"]
    assert "preset `0.02` (ppo), `0` (orz, " in ENTRIES["kl_coef"] and "`0.04` (grpo)" in ENTRIES["kl_coef"]


def flags_of(parser: ArgumentParser) -> set[str]:
    parts = [part for action in parser._actions if isinstance(action.choices, dict) for part in action.choices.values()]
    own = {flag for action in parser._actions for flag in action.option_strings if flag.startswith("--")}
    return own.union(*map(flags_of, parts))


def test_the_flags_of_other_commands_are_there() -> None:
    shown = "\n".join(_other_commands())
    for name, command in COMMANDS.items():
        made = command.flags_or_tree()
        if isinstance(made, Parser):
            assert f"## `rlvr {name}`" in shown
            assert all(f"`{flag}`" in shown for flag in flags_of(made) - {"--help"})


def test_nothing_is_left_to_be_read_as_html() -> None:
    outside = re.sub(r"`[^`]*`", "", PAGE)
    assert not re.search(r"<\w", outside)


def test_it_is_made_from_the_tree_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A default that changes in the source changes on the page."""
    flags = {flag.name: flag for section in catalog(Config) for flag in section.flags}
    assert "default `0.2`" in ENTRIES["eps_clip"] and flags["eps_clip"].default == 0.2
    assert len(ENTRIES) > 130 and len(fields(Config)) == len({s.name for s in catalog(Config)})
