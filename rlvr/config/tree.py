"""Trees of settings: dataclasses of dataclasses, built from nested dictionaries and YAML with every mistake named."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from rewards.errors import UserError
from rlvr.config.catalog import canonical, catalog, flags_by_spelling
from rlvr.config.files import parse_yaml, read_text
from rlvr.errors import did_you_mean

T = TypeVar("T")
_reader: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)
"""By kind of tree. Making one takes longer than all that it reads, and a command reads its settings a dozen times."""


def forbid_unknown(kind: type[T]) -> type[T]:
    """Class decorator of a tree: a key that is no field, in it or in a section, is an error."""
    for part in (kind, *(f.default_factory for f in fields(kind))):  # type: ignore[arg-type]
        part.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[union-attr]
    return kind


def to_dict(config: Any) -> dict[str, Any]:
    """The tree as nested plain dictionaries, ready for YAML or JSON."""
    return {f.name: to_dict(v) if is_dataclass(v := getattr(config, f.name)) else v for f in fields(config)}


def merge(config: T, settings: Mapping[str, Mapping[str, Any]]) -> T:
    """A copy of `config` with `settings` (section -> field -> value) laid over it.

    Raises:
        UserError: an unknown section or field, or a value of the wrong type; the message names each.
    """
    tree = to_dict(config)
    for section, values in settings.items():
        if not isinstance(values, Mapping):
            raise UserError(f"config: {_not_a_section(type(config), section, values)}")
        tree[section] = {**tree.get(section, {}), **values}
    return build(type(config), tree)


def build(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Build a tree of settings from nested dictionaries; what is absent keeps its default. A single value may stand for a list of one.

    Raises:
        UserError: an unknown section or field, or a value of the wrong type; the message names each.
    """
    try:
        return _reader(kind).validate_python(_with_lists(kind, tree))
    except ValidationError as error:
        raise UserError("config: " + "; ".join(_describe(kind, e) for e in error.errors())) from None


def _with_lists(kind: type, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The tree with `[value]` where a single value stands in place of a list."""
    listed = {flag.place for flag in flags_by_spelling(kind).values() if flag.metavar.endswith(" ...")}

    def whole(section: str, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        return {
            name: [value] if (section, name) in listed and isinstance(value, str | int | float) else value
            for name, value in values.items()
        }

    return {section: whole(section, values) for section, values in tree.items()}


def _describe(kind: Any, error: Any) -> str:
    place = [str(part) for part in error["loc"]]
    if error["type"] not in ("unexpected_keyword_argument", "extra_forbidden"):
        return f"{'.'.join(place)} = {error['input']!r}: {error['msg']}"
    sections = {section.name: section for section in catalog(kind)}
    if len(place) == 1:
        return _not_a_section(kind, place[0], error["input"])
    return f"unknown setting {'.'.join(place)!r}" + (
        _home_of(kind, place[-1]) or _nearest(place[-1], [flag.name for flag in sections[place[0]].flags])
    )


def _not_a_section(kind: type, name: str, value: Any) -> str:
    """What to say of a key at the top that is no section with settings: a flat file's, perhaps."""
    sections = [section.name for section in catalog(kind)]
    if name in sections:
        return f"section {name!r} must be a mapping of settings, not {type(value).__name__}"
    return f"unknown section {name!r}" + (_home_of(kind, name) or _nearest(name, sections))


def _home_of(kind: type, name: str) -> str:
    """The section that a setting belongs to; nothing if there is no such setting. Aliases count."""
    flag = flags_by_spelling(kind).get(canonical(name))
    return (
        f": it belongs into the section {flag.section!r}: write `{flag.section}: {{{flag.name}: ...}}`" if flag else ""
    )


def _nearest(name: str, known: Sequence[str]) -> str:
    return f".{did_you_mean(name, known)} Known here: {', '.join(known)}"


def load_yaml(path: str) -> dict[str, Any]:
    """Read a saved `config.yaml` as nested dictionaries.

    Raises:
        UserError: the file is absent, is not YAML, or is not a mapping.
    """
    try:
        tree = parse_yaml(read_text(Path(path)))
    except OSError as error:
        raise UserError(f"--config {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"--config {path}: not valid YAML: {error}") from None
    if not isinstance(tree, dict):
        raise UserError(f"--config {path}: must hold a mapping of sections, not {type(tree).__name__}")
    return tree


def overlay(*layers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sections of settings laid over each other, the last on top."""
    tree: dict[str, Any] = {}
    for layer in layers:
        for section, values in layer.items():
            known = tree.get(section, {})
            tree[section] = {**known, **values} if isinstance(values, Mapping) else values
    return tree
