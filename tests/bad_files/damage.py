"""Ways to damage a file: its bytes, whatever it holds; values in a JSON or YAML file; tensors in a safetensors file."""

import gzip
import json
import os
import pickle
import random
import struct
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

Damage = Callable[[Path, random.Random], None]
"""Damages the file at a path."""

HTML = b"<!doctype html>\n<html><head><title>Sign in</title></head><body>Log in to download: this file</body></html>\n"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22e\nsize 12345\n"


def _bytes(change: Callable[[bytes, random.Random], bytes]) -> Damage:
    def damage(path: Path, rng: random.Random) -> None:
        path.write_bytes(change(path.read_bytes(), rng))

    return damage


def _folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _pipe(path: Path, rng: random.Random) -> None:
    """Who opens it waits for a writer, for ever."""
    path.unlink()
    os.mkfifo(path)


def _gone(path: Path, rng: random.Random) -> None:
    path.unlink()


def _dangling(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def _itself(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path)


def _flip(old: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(old))
    return old[:place] + bytes([old[place] ^ 1 << rng.randrange(8)]) + old[place + 1 :]


# What nothing that we read can look like.
ANY: dict[str, Damage] = {
    "empty": _bytes(lambda old, rng: b""),
    "zeros": _bytes(lambda old, rng: bytes(len(old))),
    "noise": _bytes(lambda old, rng: rng.randbytes(max(64, len(old)))),
    "gzipped": _bytes(lambda old, rng: gzip.compress(old)),
    "a pickle": _bytes(lambda old, rng: pickle.dumps({"text": old})),
    "a web page": _bytes(lambda old, rng: HTML),
    "a pointer of git-lfs": _bytes(lambda old, rng: LFS),
    "a folder": _folder,
    "a named pipe": _pipe,
    "gone": _gone,
    "a dangling link": _dangling,
    "a link to itself": _itself,
}
TEXT: dict[str, Damage] = {
    "white space": _bytes(lambda old, rng: b" \n\t\n"),
    "not UTF-8": _bytes(lambda old, rng: old[: len(old) // 2] + b"\xff\xfe\xc3" + old[len(old) // 2 :]),
    "UTF-16": _bytes(lambda old, rng: old.decode().encode("utf-16")),
}
JSON: dict[str, Damage] = {
    "cut": _bytes(lambda old, rng: old.rstrip()[: -rng.randrange(1, 5)]),
    "deep": _bytes(lambda old, rng: b"[" * 100_000),
    "deep objects": _bytes(lambda old, rng: b'{"a":' * 50_000),
    "a number of 5,000 digits": _bytes(lambda old, rng: b'{"a": ' + b"9" * 5000 + b"}"),
    "null": _bytes(lambda old, rng: b"null"),
    "a number": _bytes(lambda old, rng: b"3"),
    "text": _bytes(lambda old, rng: b'"text"'),
    "a list": _bytes(lambda old, rng: b"[[1], 2]"),
    "an empty object": _bytes(lambda old, rng: b"{}"),
}
YAML: dict[str, Damage] = {
    "deep": _bytes(lambda old, rng: b"[" * 50_000),
    "a tab": _bytes(lambda old, rng: b"a:\n\t- b\n" + old),
    "an open quote": _bytes(lambda old, rng: old + b'\nz: "'),
    "a tag of Python": _bytes(lambda old, rng: b"a: !!python/object/apply:os.system ['true']\n"),
    "an alias of nothing": _bytes(lambda old, rng: old + b"\nz: *nothing\n"),
    "a bomb of aliases": _bytes(
        lambda old, rng: (
            b"a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9)) for i in range(1, 12))
        )
    ),
    "an alias of itself": _bytes(lambda old, rng: b"a: &a [*a]\n"),
    "a list": _bytes(lambda old, rng: b"- a\n- b\n"),
    "a number": _bytes(lambda old, rng: b"3\n"),
    "two documents": _bytes(lambda old, rng: b"a: 1\n---\nb: 2\n"),
}
CHANGED: dict[str, Damage] = {
    "a bit": _bytes(_flip),
    "cut": _bytes(lambda old, rng: old[: rng.randrange(len(old))]),
    "longer": _bytes(lambda old, rng: old + b"\0"),
    "empty": ANY["empty"],
    "gone": _gone,
    "a folder": _folder,
}
"""What digests find."""


def new_text(text: str | bytes) -> Damage:
    """Something else is in the file."""
    return _bytes(lambda old, rng: text.encode() if isinstance(text, str) else text)


# Values of JSON and YAML.

ODD: tuple[Any, ...] = (None, True, -1, 0, 10**30, 0.5, float("nan"), float("inf"), "", "text", [], [[]], {}, {"a": 1})
GONE = object()


def paths_in(tree: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a tree of lists and objects."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield (*way, key)
        yield from paths_in(value, (*way, key))


def with_value(way: tuple[Any, ...], value: Any, as_yaml: bool = False) -> Damage:
    """Another value at this place of a JSON (or YAML) file, or none there."""

    def damage(path: Path, rng: random.Random) -> None:
        text = path.read_text()
        tree = deepcopy(yaml.safe_load(text) if as_yaml else json.loads(text))
        inner = tree
        for key in way[:-1]:
            inner = inner[key]
        if value is GONE:
            del inner[way[-1]]
        else:
            inner[way[-1]] = value
        path.write_text(yaml.safe_dump(tree) if as_yaml else json.dumps(tree))

    return damage


# safetensors: a length, a JSON header, bytes.


def tensors(change: Callable[[dict[str, Any], bytes], tuple[Any, bytes]]) -> Damage:
    """Another header, or other bytes, in a safetensors file."""

    def damage(path: Path, rng: random.Random) -> None:
        old = path.read_bytes()
        size = struct.unpack("<Q", old[:8])[0]
        header, data = change(json.loads(old[8 : 8 + size]), old[8 + size :])
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)

    return damage


def _first(header: dict[str, Any], **changes: Any) -> dict[str, Any]:
    name = next(name for name in header if name != "__metadata__")
    return header | {name: header[name] | changes}


def _renamed(header: dict[str, Any]) -> dict[str, Any]:
    return {(name if name == "__metadata__" else f"other.{name}"): value for name, value in header.items()}


TENSORS: dict[str, Damage] = {
    "cut in the header": _bytes(lambda old, rng: old[:20]),
    "cut in the tensors": _bytes(lambda old, rng: old[: len(old) - 100]),
    "a header of 10^18 bytes": _bytes(lambda old, rng: struct.pack("<Q", 10**18) + old[8:]),
    "a header that is none": tensors(lambda header, data: (b"{]", data)),
    "a deep header": tensors(lambda header, data: (b"[" * 100_000, data)),
    "a tensor beyond the end": tensors(lambda header, data: (_first(header, data_offsets=[0, 10**12]), data)),
    "a tensor of 10^18 numbers": tensors(lambda header, data: (_first(header, shape=[10**9, 10**9]), data)),
    "a dtype that there is none": tensors(lambda header, data: (_first(header, dtype="Q128"), data)),
}
NAMES: dict[str, Damage] = {
    "other names": tensors(lambda header, data: (_renamed(header), data)),
    "no tensors": tensors(lambda header, data: ({"__metadata__": header.get("__metadata__", {})}, b"")),
}
"""Whole, but with nothing in it that is looked for."""
NAN = tensors(lambda header, data: (header, b"\xff" * len(data)))
