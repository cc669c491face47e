"""Requests of whole prompts, and weights in buckets. No cluster runs."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from rlvr.models.loading import ALIGNMENT, load_causal_lm
from rlvr.ray.roles import RayPPORollout
from rlvr.ray.splitting import into_buckets
from rlvr.rollout.engine import cut_into_parts


def prompts(*lengths: int, samples: int) -> list[Any]:
    made = [SimpleNamespace(ids=(number, *range(1, length))) for number, length in enumerate(lengths)]
    return [prompt for prompt in made for _ in range(samples)]


def test_parts_hold_whole_prompts_the_shorter_first() -> None:
    assert cut_into_parts(prompts(5, 3, 4, samples=2), 4) == [[2, 3, 4, 5], [0, 1]]
    assert cut_into_parts(prompts(5, 3, 4, samples=2), 5) == [[2, 3, 4, 5], [0, 1]]
    assert cut_into_parts(prompts(3, 3, samples=3), 2) == [[0, 1, 2], [3, 4, 5]]  # a prompt is never divided
    assert cut_into_parts(prompts(3, 3, samples=1), 9) == [[0, 1]] and cut_into_parts([], 4) == []


def test_buckets_bring_every_bit() -> None:
    weights = {
        "a": torch.randn(8, 8), "b": torch.randn(3, dtype=torch.bfloat16), "c": torch.tensor(2.0), "d": torch.randn(300).requires_grad_(),
    }  # fmt: skip
    weights["strided"] = torch.randn(4, 6).T
    buckets = list(into_buckets(weights.items(), 280))
    assert [list(bucket) for bucket in buckets] == [["a", "b", "c"], ["d"], ["strided"]]
    for name, sent in (pair for bucket in buckets for pair in bucket.items()):
        own = nn.Parameter(torch.zeros(weights[name].shape))
        sent.load_into(own)
        assert own.dtype == weights[name].dtype and torch.equal(own, weights[name])
        assert own.requires_grad == weights[name].requires_grad


@pytest.mark.parametrize("place", [0, 7, 8, 25])
def test_a_bit_that_changes_on_the_way_is_seen(place: int) -> None:
    [bucket] = into_buckets([("a", torch.randn(13, dtype=torch.bfloat16))])  # 26 bytes
    changed = bucket["a"].data.copy()
    changed[place] ^= 1 << (place % 8)
    with pytest.raises(ValueError, match="changed on its way"):
        replace(bucket["a"], data=changed).load_into(nn.Parameter(torch.zeros(13)))


def test_a_worker_has_no_version_where_weights_did_not_arrive(monkeypatch) -> None:
    """So that what it answers is refused (test_asynchronous.py: "has other weights"), and it is replaced."""
    monkeypatch.setattr("ray.get", lambda bucket: bucket)
    worker = RayPPORollout.__new__(RayPPORollout)
    worker.actor, worker.version = nn.Linear(3, 2), 4
    [bucket] = into_buckets(worker.actor.named_parameters())
    worker.take_weights(5, [bucket])
    assert worker.version == 5
    harmed = {**bucket, "bias": replace(bucket["bias"], checksum=bucket["bias"].checksum ^ 1)}
    with pytest.raises(ValueError, match="changed on its way"):
        worker.take_weights(6, [harmed])
    assert worker.version == -1


def test_weights_of_a_file_lie_where_torch_would_put_them(micro_model) -> None:
    assert all(weight.data_ptr() % ALIGNMENT == 0 for weight in load_causal_lm(micro_model).parameters())
