"""Nested states come back as they were, and nothing but tensors and plain values is read."""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rlvr.boost.tensor_files import Unreadable, from_bytes, read_tensors, to_bytes, write_tensors

shared = torch.arange(12.0)
STATE: dict[str, Any] = {
    "optimizer": {
        "state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.randn(2, 3)}, 1: {}},
        "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1], "fused": True, "foreach": None}],
    },
    "same storage": [shared, shared[3:5], shared.view(3, 4).t(), shared],
    "types": (torch.tensor([True]), torch.zeros(2, dtype=torch.bfloat16), torch.tensor([-1]), torch.empty(0, 4), torch.tensor(2**40)),
    "alike": {0: torch.tensor(1), "0": torch.tensor(2)},
    "numbers": [1 / 3, 1e300, -0.0, math.inf, 2**70, True, None, "\ud83d é /"],
}  # fmt: skip


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_tensors(STATE, tmp_path / "a.safetensors")
    assert same(read_tensors(tmp_path / "a.safetensors"), STATE)
    assert same(from_bytes(to_bytes(STATE)), STATE)
    assert same(from_bytes(to_bytes([])), [])


@pytest.mark.parametrize("thing", [object(), {1.5: torch.zeros(1)}, {"a": {(1, 2): 1}}, {"f": print}])
def test_other_things_are_not_written(thing: Any) -> None:
    with pytest.raises(TypeError, match="neither a tensor nor a plain value|keys must be"):
        to_bytes(thing)


class Attack:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code ran",))


BAD = [
    None,
    "x",
    "[" * 100_000,
    json.dumps({"tensor": "nosuch"}),
    json.dumps({"set": []}),
    json.dumps({"dict": [["a"]]}),
    json.dumps({"dict": 1, "list": 2}),
    json.dumps({"list": None}),
]


@pytest.mark.parametrize("structure", BAD, ids=str)
def test_a_strangers_file_is_refused(structure: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata=None if structure is None else {"structure": structure})
    for read in (lambda: read_tensors(path), lambda: from_bytes(path.read_bytes())):
        with pytest.raises(Unreadable):
            read()


def test_no_pickle_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    torch.save({"a": torch.zeros(1)}, path)
    for data in (path.read_bytes(), pickle.dumps(Attack()), b"", b"\xff" * 100):
        path.write_bytes(data)
        for read in (lambda: read_tensors(path), lambda data=data: from_bytes(data)):
            with pytest.raises(Unreadable):
                read()
