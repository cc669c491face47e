"""Small files that anybody may have written, read whole and within bounds: text, JSON, YAML.

Whatever is wrong with one comes as `OSError` (it can't be read) or `ValueError` (it holds something else), for the caller to say which
file it is and what to do. By itself `json` also raises `RecursionError`, PyYAML errors of its own, and a named pipe waits for ever.
"""

import errno
import json
from pathlib import Path
from typing import Any

import yaml

MAX_YAML_VALUES = 100_000
"""Most values in a YAML file."""
_STREAMS = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""What a shell names where it hands on a command's output."""


def require_file(path: Path) -> None:
    """Raise `OSError` for what would be waited for: a named pipe, a device. What is not there is left to who opens it."""
    if path.exists() and not path.is_file() and not path.is_dir() and not str(path).startswith(_STREAMS):
        raise OSError(errno.EINVAL, "it is a named pipe or a device, and no file", str(path))


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        OSError: it can't be read, or is no file.
        ValueError: it is not UTF-8.
    """
    require_file(path)
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text") from None


def read_json(path: Path) -> Any:
    """What a JSON file holds.

    Raises:
        OSError: it can't be read, or is no file.
        ValueError: it is not JSON in UTF-8.
    """
    return parse_json(read_text(path))


def parse_json(text: str) -> Any:
    """What a JSON text holds.

    Raises:
        ValueError: it is not JSON (then a `json.JSONDecodeError`), is nested too deeply, or holds a number of thousands of digits.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_yaml(text: str) -> Any:
    """What a YAML text holds: plain values, of bounded size.

    Aliases may stand, but a few hundred bytes of them can stand for 10^9 values, on which whoever walks through them hangs.

    Raises:
        ValueError: it is not YAML, is nested too deeply, or holds more than `MAX_YAML_VALUES` values.
    """
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _count(node, {}) > MAX_YAML_VALUES:
            raise ValueError(f"it holds more than {MAX_YAML_VALUES:,} values, with aliases written out")
        return loader.construct_document(node)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Values in a tree of YAML, those behind aliases counted each time; `known` has the counts of nodes seen."""
    if id(node) not in known:
        known[id(node)] = MAX_YAML_VALUES + 1  # of a node that holds itself
        inside = [one for pair in node.value for one in pair] if isinstance(node, yaml.MappingNode) else node.value
        parts = [] if isinstance(node, yaml.ScalarNode) else inside
        known[id(node)] = 1 + sum(_count(one, known) for one in parts)
    return known[id(node)]
