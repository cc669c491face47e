"""Bytes that processes send: the least against rings played through by hand, and what is counted against what was sent."""

import json
import os
import socket

import pytest
import torch
import torch.distributed as dist
from torch import nn

from benchmarks.scaling import case, launch, results, scaled
from benchmarks.sides.work import Work
from benchmarks.traffic import WIDTHS, Asked, Passes, bytes_sent, least, ring_bytes, weights_of
from rlvr.boost.boosted import Boosted
from rlvr.boost.plugins import make_booster
from rlvr.config import ParallelConfig


def ring(values: list[list[int]], then_gather: bool) -> tuple[list[list[int]], list[int]]:
    """Play a ring of N processes with N numbers each: the sums, in whom they end, and the numbers that each has sent."""
    n, sent = len(values), [0] * len(values)
    for turn in range(2 * (n - 1) if then_gather else n - 1):
        places = [(rank - turn) % n for rank in range(n)]
        moving = [values[rank][place] for rank, place in enumerate(places)]
        for rank, place in enumerate(places):
            sent[rank] += 1
            mate = values[(rank + 1) % n]
            mate[place] = moving[rank] + (mate[place] if turn < n - 1 else 0)
    return values, sent


@pytest.mark.parametrize("processes", [2, 3, 4, 8])
def test_the_least_is_what_a_ring_sends(processes) -> None:
    start = [[10**rank * place for place in range(processes)] for rank in range(processes)]
    sums = [sum(column) for column in zip(*start, strict=True)]
    done, sent = ring([list(row) for row in start], then_gather=True)
    assert done == [sums] * processes
    assert sent == [ring_bytes("allreduce", processes, processes)] * processes
    done, sent = ring([list(row) for row in start], then_gather=False)
    assert [done[rank][(rank + 1) % processes] for rank in range(processes)] == [
        sums[(rank + 1) % processes] for rank in range(processes)
    ]
    assert sent == [ring_bytes("reduce_scatter", processes, processes)] * processes


def played(plugin: str, w: int, g: int, weights: int, layers: int, passes: Passes, n: int) -> float:
    """The same as `least`, collective by collective."""
    asked: list[tuple[str, int]] = []
    outside_is_whole = False
    if plugin == "fsdp":
        asked += [("allgather", w * weights)] * passes.rollouts
        for _ in range(passes.scoring):
            asked += [("allgather", w * layers)] + [("allgather", w * (weights - layers))] * (not outside_is_whole)
            outside_is_whole = True
    for _ in range(passes.steps):
        for micro_batch in range(passes.learning // passes.steps):
            if plugin == "fsdp":
                asked += [("allgather", w * layers)] * 2 + [("allgather", w * (weights - layers))] * (
                    not outside_is_whole
                )
                outside_is_whole = False
            if plugin == "zero2":
                asked.append(("reduce_scatter", g * weights))
            elif micro_batch == 0:
                asked.append(("allreduce" if plugin == "ddp" else "reduce_scatter", g * weights))
        if plugin.startswith("zero"):
            asked.append(("allgather", w * weights))
    return sum(ring_bytes(name, size, n) for name, size in asked)


@pytest.mark.parametrize(("plugin", "precision"), WIDTHS)
@pytest.mark.parametrize("scoring", [0, 2])
def test_what_a_plugin_needs_is_the_sum_of_its_collectives(plugin, precision, scoring) -> None:
    passes = Passes(steps=3, learning=6, scoring=scoring, rollouts=1)
    widths = WIDTHS[plugin, precision]
    assert least(plugin, precision, 100, 60, passes, 4) == pytest.approx(played(plugin, *widths, 100, 60, passes, 4))


def test_collectives_are_counted_whoever_calls_them(process) -> None:
    model = nn.parallel.DistributedDataParallel(nn.Linear(6, 4))
    with Asked() as asked:
        model(torch.ones(2, 6)).sum().backward()  # C++ calls the all-reduce
        dist.all_reduce(torch.ones(5))
        dist.broadcast(torch.ones(3), 0)
        dist.all_gather_into_tensor(torch.ones(7), torch.ones(7))
        torch.ones(1000) + 1
    assert asked.bytes == {"allreduce": 4 * (28 + 5), "broadcast": 12, "allgather": 28}
    assert asked.as_rings(2) == pytest.approx(4 * 33 + (12 + 28) / 2)


def test_the_kernel_counts_what_is_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as mine:
        theirs, _ = server.accept()
        with theirs:
            before, files = bytes_sent(), os.listdir("/proc/self/fd")
            mine.sendall(b"x" * 12345)
            received = 0
            while received < 12345:
                received += len(theirs.recv(65536))
            assert bytes_sent() - before == 12345
            assert len(os.listdir("/proc/self/fd")) == len(files)


@pytest.mark.parametrize("plugin", ["zero1", "zero2"])
def test_zero_sends_sums_of_shares_only_and_zero1_once_a_step(plugin, process) -> None:
    model = nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    booster = make_booster(ParallelConfig(plugin=plugin, mixed_precision="fp32"), process.device, 1.0)
    role = Boosted(booster, model, optimizer)
    with Asked() as asked:
        role.learn([lambda: role.forward(torch.ones(2, 8)).square().sum()] * 3)
    gradients = {name: size for name, size in asked.bytes.items() if "reduce_scatter" in name}
    assert sum(gradients.values()) == 4 * 72 * (1 if plugin == "zero1" else 3)
    assert asked.bytes["allreduce"] <= 16  # the norm


def test_weights_of_a_role() -> None:
    from tiny_models import tiny_model

    model = tiny_model()
    found = weights_of(model)
    assert found.learned == sum(p.numel() for p in model.parameters())
    outside = model.model.embed_tokens.weight.numel() + model.model.norm.weight.numel() + model.lm_head.weight.numel()
    assert found.layers == found.learned - outside


@pytest.mark.processes
def test_two_processes_are_asked_for_the_least_under_every_plugin() -> None:
    """Beside it: metrics, lengths, norms. gloo sends twice of a reduce-scatter, which torch makes of an all-reduce there."""
    kinds = [
        ("ddp", "fp32"),
        ("zero1", "fp32"),
        ("zero2", "fp32"),
        ("fsdp", "fp32"),
        ("fsdp", "bf16"),
    ]
    cases = [case(Work("S", 8, "fixed", precision), 16, plugin, count=True) for plugin, precision in kinds]
    found = list(results(launch(cases, 1, processes=2)))
    assert [(f["plugin"], f["work"]["precision"]) for f in found] == kinds
    for one in found:
        counted = one["traffic"]
        assert counted["least"] > 10e6 and one["processes"] == 2, one
        assert 1 <= counted["asked"] / counted["least"] < 1.02, one
        assert 0.99 < counted["sent"] / counted["least"] < 2.1, one


def test_a_line_of_the_table() -> None:
    def took(seconds: float) -> dict[str, object]:
        return {"plugin": "ddp", "seconds": seconds, "cpu_seconds": 2 * seconds}

    row = scaled(half=took(5.0), whole=took(9.0), two=took(6.0), apart=took(5.5), beside=took(5.0))
    assert (row["speed-up"], row["weak efficiency"], row["apart"]) == (1.5, 0.83, 0.91)
    assert (row["weak efficiency of apart"], row["processor time"]) == (0.92, 0.67)
    json.dumps(row)
