"""Every process must run the same thing: settings, versions, data and starting weights are compared before training.

What differs between machines would not fail by itself: each process would train on its own idea of the run, and their
average would be nobody's. Digests are compared first; only where they differ does every process tell all it has.
`rlvr.run.session` calls this once, before the first episode.
"""

import hashlib
import inspect
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import rewards
from rlvr.boost.process import gather_json, host_name
from rlvr.errors import UserError

_PACKAGES = ("torch", "transformers", "colossalai", "peft", "safetensors")
_SHOWN = 8
_SAMPLES = 1024  # numbers of each tensor that go into a digest


def check_same(what: str, facts: Mapping[str, Any], remedy: str) -> None:
    """Compare plain facts (nested mappings of JSON values) with rank 0's. Collective.

    Args:
        what: they are: `settings`, `versions`.
        remedy: what to do if they differ.

    Raises:
        UserError: in all processes alike; names each rank that differs from rank 0, its machine, and what differs.
    """
    text = json.dumps(facts, sort_keys=True, default=str)
    if len(set(gather_json(digest(text.encode())))) == 1:
        return
    everyone = gather_json([host_name(), json.loads(text)])
    first_host, first = everyone[0]
    lines = []
    for rank, (host, other) in enumerate(everyone):
        found = [f"{name} {theirs!r} instead of {ours!r}" for name, ours, theirs in differences(first, other)]
        if found:
            more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
            lines.append(f"rank {rank} on {host}: {'; '.join(found[:_SHOWN])}{more}")
    raise UserError(f"the {what} are not those of rank 0 on {first_host}:\n  " + "\n  ".join(lines) + f"\n{remedy}")


def differences(first: Any, other: Any, place: str = "") -> list[tuple[str, Any, Any]]:
    """The values in which two nested mappings differ: (dotted key, first's value, other's value)."""
    if isinstance(first, dict) and isinstance(other, dict):
        return [
            found
            for key in sorted(first.keys() | other.keys())
            for found in differences(first.get(key), other.get(key), f"{place}.{key}" if place else key)
        ]
    return [] if first == other else [(place, first, other)]


def versions() -> dict[str, str]:
    """Of Python, of what computes, and of rlvr's own code, which may differ under one version number."""
    found = {"python": platform.python_version()}
    for name in (*_PACKAGES, "rlvr"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # rlvr run from its sources
            found[name] = "not installed"
    return found | {"rlvr's source files": code_digest()}


@cache
def code_digest() -> str:
    """Changes when a source file of rlvr or rewards changes."""
    digest_of_all = hashlib.blake2b(digest_size=8)
    for package in (Path(__file__).parents[1], Path(rewards.__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest_of_all.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes())
    return digest_of_all.hexdigest()


def function_digest(function: Callable[..., Any]) -> str:
    """Changes when the file that a function stands in changes: its own file, where it is wrapped."""
    while isinstance(
        function, partial
    ):  # one written for another library is an argument of its adapter (`rewards.foreign`)
        function = next(filter(callable, function.args), function.func)
    function = inspect.unwrap(function)
    try:
        written = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
        return digest(Path(inspect.getsourcefile(written) or "").read_bytes())
    except (OSError, TypeError):  # built in, or typed in: its name must do
        return getattr(function, "__qualname__", type(function).__name__)


def weights_digest(tensors: Iterable[tuple[str, Tensor]], *, whole: bool = False) -> str:
    """Changes when weights are other ones; looks at some numbers of each tensor, evenly spread, or with `whole` at all."""
    digest_of_all = hashlib.blake2b(digest_size=8)
    for name, tensor in tensors:
        flat = tensor.detach().flatten()
        some = flat[:: 1 if whole else max(1, flat.numel() // _SAMPLES)].contiguous().cpu()
        digest_of_all.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}\0".encode())
        digest_of_all.update(some.view(torch.uint8).numpy().tobytes() if some.numel() else b"")
    return digest_of_all.hexdigest()


def digest(data: bytes) -> str:
    """Sixteen hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()
