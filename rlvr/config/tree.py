"""Trees of settings: dataclasses of dataclasses, built from nested dictionaries and YAML with every mistake named."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from rewards.errors import UserError

T = TypeVar("T")

MAX_YAML_VALUES = 100_000
"""Most values in a file of settings."""


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
            raise UserError(f"config section {section!r} must be a mapping of settings, not {type(values).__name__}")
        tree[section] = {**tree.get(section, {}), **values}
    return build(type(config), tree)


def build(kind: type[T], tree: Mapping[str, Any]) -> T:
    """Build a tree of settings from nested dictionaries; what is absent keeps its default.

    Raises:
        UserError: an unknown section or field, or a value of the wrong type; the message names each.
    """
    try:
        return TypeAdapter(kind).validate_python(dict(tree))
    except ValidationError as error:
        raise UserError("config: " + "; ".join(_describe(kind, e) for e in error.errors())) from None


def _describe(kind: Any, error: Any) -> str:
    place = ".".join(str(part) for part in error["loc"])
    if error["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        section = str(error["loc"][0])
        known = {f.name: f for f in fields(kind)}
        of_section = fields(known[section].default_factory) if section in known else fields(kind)  # type: ignore[arg-type]
        return f"unknown setting {place!r}; known here: {', '.join(f.name for f in of_section)}"
    return f"{place} = {error['input']!r}: {error['msg']}"


def load_yaml(path: str) -> dict[str, Any]:
    """Read a saved `config.yaml` as nested dictionaries.

    Raises:
        UserError: the file is absent, is not YAML, or is not a mapping.
    """
    try:
        with open(path, encoding="utf-8") as file:
            tree = parse_yaml(file.read())
    except OSError as error:
        raise UserError(f"--config {path}: {error.strerror}") from None
    except ValueError as error:  # bytes that are no UTF-8 are one, too
        raise UserError(f"--config {path}: not valid YAML: {error}") from None
    if not isinstance(tree, dict):
        raise UserError(f"--config {path}: must hold a mapping of sections, not {type(tree).__name__}")
    return tree


def parse_yaml(text: str) -> Any:
    """What a YAML text of anybody's holds: plain values, of bounded size.

    Aliases may stand, but a few hundred bytes of them can stand for 10^9 values, on which whoever walks through them hangs.

    Raises:
        ValueError: it is not YAML, is nested too deeply, or holds more than `MAX_YAML_VALUES` values.
    """
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        if _count(node, {}) > MAX_YAML_VALUES:
            raise ValueError(f"it holds more than {MAX_YAML_VALUES:,} values, with aliases written out")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    finally:
        loader.dispose()


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Values in a tree of YAML, those behind aliases counted each time; `known` has the counts of nodes seen."""
    if id(node) not in known:
        known[id(node)] = MAX_YAML_VALUES + 1  # of a node that holds itself
        inside = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
        parts = [] if isinstance(node, yaml.ScalarNode) else inside
        known[id(node)] = 1 + sum(_count(one, known) for one in parts)
    return known[id(node)]


def overlay(*layers: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sections of settings laid over each other, the last on top."""
    tree: dict[str, Any] = {}
    for layer in layers:
        for section, values in layer.items():
            known = tree.get(section, {})
            tree[section] = {**known, **values} if isinstance(values, Mapping) else values
    return tree
