"""What is known of each setting of a tree: its flag, aliases, type, default and text. Help, completion and checks read it."""

import ast
import inspect
import textwrap
import types
import typing
from collections.abc import Iterator
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, Literal, Union

REQUIRED = "required"
"""Stands for the default of a setting that has none."""

Place = tuple[str, str]
"""Section and field: `("train", "lr")`."""


@dataclass(frozen=True)
class Flag:
    """One setting as the command line sees it.

    Attributes:
        section, name: where it lies in the tree; the name is the flag.
        aliases: further names, without dashes.
        metavar: what stands for its value; empty for switches.
        choices: the values that it may have, where they are few.
        default: in the tree itself, beneath presets and models.
        text: its documentation, one paragraph.
    """

    section: str
    name: str
    aliases: tuple[str, ...]
    metavar: str
    choices: tuple[str, ...]
    default: Any
    text: str

    @property
    def place(self) -> Place:
        return self.section, self.name

    @property
    def is_switch(self) -> bool:
        """Whether it takes no value: `--name`, `--no_name`."""
        return not self.metavar

    @property
    def spellings(self) -> Iterator[str]:
        """Every name that the command line takes for it, without dashes before it and with underscores."""
        for name in (self.name, *self.aliases):
            yield name
            if self.is_switch:
                yield f"no_{name}"


@dataclass(frozen=True)
class Section:
    """A topic: its flags in order, and what it is about."""

    name: str
    text: str
    flags: tuple[Flag, ...]


@cache
def catalog(kind: type) -> tuple[Section, ...]:
    """The sections of a tree of settings such as `Config`."""
    return tuple(_section(f.name, typing.get_type_hints(kind)[f.name]) for f in fields(kind))


def flags_by_spelling(kind: type) -> dict[str, Flag]:
    """Each name that the command line takes (underscores, no dashes before it) -> its flag."""
    return {spelling: flag for section in catalog(kind) for flag in section.flags for spelling in flag.spellings}


def canonical(word: str) -> str:
    """A flag as it was typed (`--num-episodes=4`) -> its spelling in the catalogue (`num_episodes`)."""
    return word.removeprefix("--").partition("=")[0].replace("-", "_")


def given_places(argv: list[str], kind: type) -> set[Place]:
    """The settings that the words of a command line name."""
    known = flags_by_spelling(kind)
    return {known[name].place for word in argv if word.startswith("--") and (name := canonical(word)) in known}


def _section(name: str, kind: type) -> Section:
    texts, hints = _field_texts(kind), typing.get_type_hints(kind, include_extras=True)
    flags = tuple(_flag(name, f, hints[f.name], texts.get(f.name, "")) for f in fields(kind))
    return Section(name, inspect.getdoc(kind) or "", flags)


def _flag(section: str, field: Field, hint: Any, text: str) -> Flag:
    aliases: list[str] = []
    if typing.get_origin(hint) is typing.Annotated:
        for note in hint.__metadata__:
            aliases += [alias.lstrip("-") for alias in getattr(note, "aliases", None) or ()]
        hint = hint.__origin__
    metavar, choices = _metavar(hint)
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    default = REQUIRED if default is MISSING else default
    return Flag(section, field.name, tuple(aliases), metavar, choices, default, text)


def _metavar(hint: Any) -> tuple[str, tuple[str, ...]]:
    """What stands for a value of this type, and which values there are, if few."""
    origin = typing.get_origin(hint)
    if origin in (Union, types.UnionType):
        members = [a for a in typing.get_args(hint) if a is not type(None)]
        if members == [bool]:
            return "BOOL", ("None", "True", "False")
        return _metavar(members[0])
    if hint is bool:
        return "", ()
    if origin is Literal:
        return "NAME", tuple(str(value) for value in typing.get_args(hint))
    if origin is list:
        return f"{_metavar(typing.get_args(hint)[0])[0]} ...", ()
    return {str: "TEXT", int: "N", float: "X"}.get(hint, "VALUE"), ()


def _field_texts(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass and of those that it derives from."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        texts |= _texts_in(base)
    return texts


def _texts_in(kind: type) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for before, after in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            texts[before.target.id] = " ".join(str(after.value.value).split())
    return texts
