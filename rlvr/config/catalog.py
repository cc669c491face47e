"""The settings of a tree as flags: names, values, defaults, documentation, and the notes beside their fields.

Parsing, `--help`, completion, the docs' page of settings, the checks before a run and `--dry_run` all read settings from here.
"""

import ast
import inspect
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import Any, Literal, Union

from rlvr.config.fields import FIXED, OnResume, Range, ReadWhen

REQUIRED = "required"
"""Stands for the default of a setting that has none."""

Place = tuple[str, str]
"""Section and field: `("train", "lr")`."""


@dataclass(frozen=True)
class Flag:
    """One setting as the command line sees it.

    Attributes:
        section, name: its place in the tree; the name is also the flag's.
        aliases: further names, without dashes.
        metavar: word that stands for its value in help; empty for switches.
        choices: the values that it may have, if they are few.
        default: the field's own, which presets and the built-in model may replace.
        text: its documentation, one paragraph.
        ranges: rules about its value.
        read_when: conditions without which nothing reads it.
        on_resume: what a resumed run may do to it.
    """

    section: str
    name: str
    aliases: tuple[str, ...]
    metavar: str
    choices: tuple[str, ...]
    default: Any
    text: str
    ranges: tuple[Range, ...] = ()
    read_when: tuple[ReadWhen, ...] = ()
    on_resume: OnResume = FIXED

    @property
    def place(self) -> Place:
        return self.section, self.name

    @property
    def is_switch(self) -> bool:
        """True for flags without a value: `--name`, `--no_name`."""
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
    """A topic of help: its documentation, and its flags in order."""

    name: str
    text: str
    flags: tuple[Flag, ...]


@cache
def catalog(kind: type) -> tuple[Section, ...]:
    """The sections of a tree of settings such as `Config`."""
    return tuple(_section(f.name, typing.get_type_hints(kind)[f.name]) for f in fields(kind))


@cache
def flags_by_spelling(kind: type) -> Mapping[str, Flag]:
    """Each name that the command line takes (underscores, no dashes before it) -> its flag."""
    return {spelling: flag for section in catalog(kind) for flag in section.flags for spelling in flag.spellings}


def canonical(word: str) -> str:
    """A flag as it was typed (`--num-episodes=4`) -> its spelling in the catalogue (`num_episodes`)."""
    return word.removeprefix("--").partition("=")[0].replace("-", "_")


def values_of(config: Any) -> Iterator[tuple[Flag, Any]]:
    """Each setting of a tree with its value, in the tree's order."""
    kind: type = type(config)
    for section in catalog(kind):
        for flag in section.flags:
            yield flag, getattr(getattr(config, section.name), flag.name)


def given_places(argv: list[str], kind: type) -> set[Place]:
    """The settings that the words of a command line name."""
    known = flags_by_spelling(kind)
    return {known[name].place for word in argv if word.startswith("--") and (name := canonical(word)) in known}


def _section(name: str, kind: type) -> Section:
    texts, hints = _field_texts(kind), typing.get_type_hints(kind, include_extras=True)
    usual = getattr(kind, "on_resume", FIXED)
    flags = tuple(_flag(name, f, hints[f.name], texts.get(f.name, ""), usual) for f in fields(kind))
    return Section(name, inspect.getdoc(kind) or "", flags)


def _flag(section: str, field: Field, hint: Any, text: str, on_resume: OnResume) -> Flag:
    notes: tuple[Any, ...] = getattr(hint, "__metadata__", ())
    metavar, choices = _metavar(hint.__origin__ if notes else hint)
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    return Flag(
        section,
        field.name,
        tuple(name.lstrip("-") for note in notes for name in getattr(note, "aliases", None) or ()),
        metavar,
        choices,
        REQUIRED if default is MISSING else default,
        text,
        tuple(note for note in notes if isinstance(note, Range)),
        tuple(note for note in notes if isinstance(note, ReadWhen)),
        next((note for note in notes if isinstance(note, OnResume)), on_resume),
    )


def _metavar(hint: Any) -> tuple[str, tuple[str, ...]]:
    """The word that stands for a value of this type in help, and the values themselves where they are few."""
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
    """The string under each field of a dataclass and of its bases. Python keeps none of them, so the source is read."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        texts |= _texts_in(base)
    return texts


def _texts_in(kind: type) -> dict[str, str]:
    texts = {}
    body = _bodies(sys.modules[kind.__module__])[kind.__name__]
    for before, after in zip(body, body[1:], strict=False):
        if (
            isinstance(before, ast.AnnAssign)
            and isinstance(before.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            texts[before.target.id] = " ".join(str(after.value.value).split())
    return texts


@cache
def _bodies(module: types.ModuleType) -> dict[str, list[ast.stmt]]:
    """By name of a class in this module, its statements. (`inspect.getsource` of a class parses the module anew each time.)"""
    found = ast.parse(inspect.getsource(module)).body
    return {statement.name: statement.body for statement in found if isinstance(statement, ast.ClassDef)}


def show(value: Any) -> str:
    """A value as one would type it; `-` for none."""
    if value is None or value == []:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(show, value)) if isinstance(value, list) else str(value)
