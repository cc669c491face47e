"""Nested containers of tensors and plain values as one safetensors file, or as its bytes: optimizer states, buffers, random states.

No pickle, so that a file from elsewhere can't run code, whatever the version of torch. (`torch.load(weights_only=True)` had holes
before torch 2.6: CVE-2025-32434.) Tensors are named by the way to them (`optimizer/state/0/exp_avg`), and the containers around
them stand as JSON in the file's metadata.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file
from torch import Tensor

_STRUCTURE = "structure"
_HEADER_LENGTH = 8  # bytes, little-endian, before the header of a safetensors file


class Unreadable(ValueError):
    """The file or the bytes are not what this module writes."""


def write_tensors(state: Any, path: Path) -> None:
    """Write nested containers of tensors and plain values.

    Raises:
        TypeError: the state holds something else; says where.
        OSError, SafetensorError: the file can't be written.
    """
    tensors, structure = _flatten(state)
    save_file(tensors, path, metadata={_STRUCTURE: structure})


def read_tensors(path: Path) -> Any:
    """Read what `write_tensors` wrote, onto the CPU.

    Raises:
        Unreadable: something else is in the file.
        OSError: there is none.
    """
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no mapping
            structure = (file.metadata() or {}).get(_STRUCTURE)
    except SafetensorError as error:
        raise Unreadable(str(error)) from None
    return _restore(structure, tensors)


def to_bytes(state: Any) -> bytes:
    """The file as bytes. Raises as `write_tensors`."""
    tensors, structure = _flatten(state)
    return save(tensors, metadata={_STRUCTURE: structure})


def from_bytes(data: bytes) -> Any:
    """Read what `to_bytes` wrote.

    Raises:
        Unreadable: it is something else.
    """
    try:
        tensors = load(data)
        end = _HEADER_LENGTH + int.from_bytes(data[:_HEADER_LENGTH], "little")
        header = json.loads(data[_HEADER_LENGTH:end])
    except (SafetensorError, ValueError, RecursionError) as error:
        raise Unreadable(str(error)) from None
    return _restore(header.get("__metadata__", {}).get(_STRUCTURE), tensors)


# A tensor is {"tensor": name}, a container {"dict": [[key, value], ...]}, {"list": [...]} or {"tuple": [...]}; the rest is itself.


def _flatten(state: Any) -> tuple[dict[str, Tensor], str]:
    tensors: dict[str, Tensor] = {}
    storages: set[int] = set()

    def plain(value: Any, place: str) -> Any:
        if isinstance(value, Tensor):
            name = place
            while name in tensors:  # of keys such as 0 and "0"
                name += "'"
            tensors[name] = _alone(value, storages)
            return {"tensor": name}
        if isinstance(value, Mapping):
            if not all(isinstance(key, str | int) for key in value):
                raise TypeError(f"{place or 'state'}: keys must be texts or whole numbers")
            return {"dict": [[key, plain(held, _under(place, key))] for key, held in value.items()]}
        if isinstance(value, list | tuple):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [plain(held, _under(place, i)) for i, held in enumerate(value)]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"{place or 'state'}: {type(value).__name__} is neither a tensor nor a plain value")

    structure = plain(state, "")
    return tensors, json.dumps(structure)


def _under(place: str, key: Any) -> str:
    return f"{place}/{key}" if place else str(key)


def _alone(tensor: Tensor, storages: set[int]) -> Tensor:
    """The tensor on the CPU with a storage of its own: a file holds each tensor by itself."""
    own = tensor.detach().cpu().contiguous()
    storage = own.untyped_storage()
    if storage.nbytes() != own.numel() * own.element_size() or storage.data_ptr() in storages:
        own = own.clone()
    storages.add(own.untyped_storage().data_ptr())
    return own


def _restore(structure: str | None, tensors: Mapping[str, Tensor]) -> Any:
    def value(plain: Any) -> Any:
        if not isinstance(plain, dict):
            return plain
        ((kind, held),) = plain.items()
        if kind == "tensor":
            return tensors[held]
        if kind == "dict":
            return {key: value(one) for key, one in held}
        return {"list": list, "tuple": tuple}[kind](map(value, held))

    if structure is None:
        raise Unreadable("it does not say how its tensors belong together")
    try:
        return value(json.loads(structure))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unreadable(f"it does not say how its tensors belong together ({type(error).__name__}: {error})") from None
