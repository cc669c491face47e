"""The page "Every setting": made from the trees of settings and the parsers of commands, never kept by hand.

`hooks.py` adds it to the site at each build; `python docs/generate/settings_page.py` prints it.
"""

from argparse import SUPPRESS
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape

from rlvr.cli.commands import COMMANDS
from rlvr.cli.parser import Parser
from rlvr.config import Config, RewardTrainingConfig, SFTConfig
from rlvr.config.catalog import Flag, catalog, show
from rlvr.config.models import SETTINGS_OF
from rlvr.config.presets import PRESETS

TREES: Mapping[str, tuple[type, Mapping[str, Mapping[str, object]]]] = {
    "train": (Config, SETTINGS_OF["tiny"][Config]),
    "sft": (SFTConfig, SETTINGS_OF["tiny"][SFTConfig]),
    "reward-model": (RewardTrainingConfig, SETTINGS_OF["tiny"][RewardTrainingConfig]),
}
TYPES = {"TEXT": "text", "N": "whole number", "X": "number", "BOOL": "yes, no or nothing", "": "switch"}
HEAD = """---
hide: [navigation]
---
# Every setting

Made from the source at each build of this site. `rlvr train --help` shows the same, `--help lr` a single one in full.

A flag is a field of a tree of settings: `--lr` is `train.lr` in `config.yaml` and in `rlvr.Config`. `-` and `_` are alike, a
switch is turned off by `--no_NAME`. Where a value comes from when several give one, and what is refused because nothing
would read it, is on [the command line](command_line.md).

*built-in* is the default for the built-in model `tiny`, where it has one of its own; *preset* is what a
[preset](presets.md) sets it to.
"""


@dataclass(frozen=True)
class Reader:
    """A setting as one command has it."""

    command: str
    flag: Flag
    built_in: object


def page() -> str:
    """The whole page in Markdown."""
    return "\n".join([HEAD, *_topics(), *_other_commands()]) + "\n"


def _topics() -> Iterator[str]:
    done: set[str] = set()
    for command, (tree, _) in TREES.items():
        for section in catalog(tree):
            new = [flag for flag in section.flags if flag.name not in done]
            if not new:
                continue
            where = "" if command == "train" else f" (`rlvr {command}`)"
            yield f"## {section.name}{where} {{ #{command}-{section.name} }}\n\n{section.text}\n"
            for flag in new:
                done.add(flag.name)
                yield from _entry(readers_of(flag.name))


def readers_of(name: str) -> list[Reader]:
    """Every command that reads the setting, with how it has it."""
    found = []
    for command, (tree, of_tiny) in TREES.items():
        for section in catalog(tree):
            found += [
                Reader(command, flag, of_tiny.get(section.name, {}).get(name))
                for flag in section.flags
                if flag.name == name
            ]
    return found


def _entry(readers: list[Reader]) -> Iterator[str]:
    """One setting: its flag, what it takes, defaults, who reads it; then its text, and where commands differ in it."""
    first = readers[0].flag
    yield f"### `--{first.name}` {{ #{first.name} }}\n"
    facts = [_takes(first), f"default {_defaults(readers)}"]
    if presets := _presets(first):
        facts.append(f"preset {presets}")
    aliases = sorted({alias for reader in readers for alias in reader.flag.aliases})
    if aliases:
        facts.append("also " + ", ".join(f"`--{alias}`" for alias in aliases))
    facts.append("read by " + ", ".join(f"`{reader.command}`" for reader in readers))
    yield f"{' · '.join(facts)}\n{{: .facts }}\n"
    yield _text(first.text) + "\n"
    others: dict[str, list[str]] = {}
    for reader in readers:
        if reader.flag.text != first.text:
            others.setdefault(reader.flag.text, []).append(f"`rlvr {reader.command}`")
    for text, commands in others.items():
        yield f"With {', '.join(commands)}: {_text(text)}\n"


def _takes(flag: Flag) -> str:
    if flag.choices and flag.metavar != "BOOL":
        return "one of " + ", ".join(f"`{choice}`" for choice in flag.choices)
    kind, many, _ = flag.metavar.partition(" ...")
    words = TYPES.get(kind, "value")
    return {"text": "texts", "number": "numbers", "whole number": "whole numbers"}[words] if many else words


def _defaults(readers: list[Reader]) -> str:
    """The default, the built-in model's own, and where a command has another."""
    by_value: dict[str, list[str]] = {}
    for reader in readers:
        value = f"`{show(reader.flag.default)}`"
        if reader.built_in is not None:
            value += f" (built-in `{show(reader.built_in)}`)"
        by_value.setdefault(value, []).append(reader.command)
    if len(by_value) == 1:
        return next(iter(by_value))
    return ", ".join(f"{value} with `{'`, `'.join(commands)}`" for value, commands in by_value.items())


def _presets(flag: Flag) -> str:
    found: dict[str, list[str]] = {}
    for name, preset in PRESETS.items():
        settings = preset.settings.get(flag.section, {})
        if flag.name in settings:
            found.setdefault(show(settings[flag.name]), []).append(name)
    return ", ".join(f"`{value}` ({', '.join(names)})" for value, names in found.items())


def _text(text: str) -> str:
    """Documentation of a field as Markdown: only what looks like HTML has to be kept from being read as such."""
    return escape(text, quote=False).replace("*", "\\*").replace("|", "\\|")


def _other_commands() -> Iterator[str]:
    """The flags of commands that are no tree of settings."""
    for name, command in COMMANDS.items():
        if name in TREES:
            continue
        made = command.flags_or_tree()
        if not isinstance(made, Parser):
            continue
        rows = list(_rows(made))
        if rows:
            yield f"## `rlvr {name}` {{ #command-{name} }}\n\n{command.text.capitalize()}.\n"
            yield "| | default | |\n|---|---|---|"
            yield "\n".join(rows) + "\n"


def _rows(parser: Parser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action.choices, dict):
            for name, part in action.choices.items():
                yield f"| *`{name}`* | | {_cell(part.description or '')} |"
                yield from _rows(part)
        elif action.dest != "help":
            left = ", ".join(f"`{flag}`" for flag in action.option_strings) or f"`{action.dest.upper()}`"
            if action.choices:
                left += " " + ", ".join(f"`{choice}`" for choice in action.choices)
            default = "" if action.default in (None, False, [], SUPPRESS) else f"`{show(action.default)}`"
            yield f"| {left} | {default} | {_cell(action.help or '')} |"


def _cell(text: str) -> str:
    return _text(" ".join(text.replace("%%", "%").split()))


if __name__ == "__main__":
    print(page())
