"""The model on paper, against slow counts of the same by `benchmarks.floors`, and where its answer is known."""

import json
import sys

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import floors, scaling_model
from benchmarks import paper as m
from benchmarks.traffic import PLUGINS

SHAPE = floors.Shape(vocabulary=1000, hidden=64, intermediate=160, layers=3, heads=4, kv_heads=2, head_dim=16)
SMALL = m.Model(SHAPE, tied=True)
LENGTHS = np.array([1, 4, 9, 9, 30])


def assume(**changes) -> m.Assumptions:
    return m.Assumptions(**{"responses": 64, "prompt": 12, "mean": 20, "longest": 64, "rows": 3, **changes})


@pytest.mark.parametrize(("head", "outputs"), [("vocabulary", SHAPE.head_weights), ("value", SHAPE.hidden)])
def test_a_forward_pass(head, outputs) -> None:
    slow = [floors.forward(SHAPE, [floors.Lengths(12, int(n))], 2, head).flops for n in LENGTHS]
    assert m.forward_flops(SHAPE, 12, LENGTHS, outputs).tolist() == slow


@pytest.mark.parametrize("gpu", [m.Gpu(1e9, 1e12, 1), m.Gpu(1e15, 1e6, 1), m.Gpu(1e12, 1e10, 1)])
def test_decoding(gpu, monkeypatch) -> None:
    monkeypatch.setitem(m.GPUS, "mine", gpu)
    a = assume(gpu="mine")
    slow = sum(
        max(cost.flops / (gpu.flops * a.forward_use), cost.moved / (gpu.bandwidth * a.decode_use)) + a.step_ms / 1e3
        for cost in floors.decode(SHAPE, [floors.Lengths(12, int(n)) for n in LENGTHS], 2)
    )
    assert m.decode_seconds(SHAPE, a, LENGTHS) == pytest.approx(slow)
    prefill = sum(floors.prefill(SHAPE, [12], 2).layers for _ in LENGTHS) / (gpu.flops * a.forward_use)
    waves = m.decode_seconds(SHAPE, a, LENGTHS[:3]) + m.decode_seconds(SHAPE, a, LENGTHS[3:])
    assert m.generation_seconds(SHAPE, a, LENGTHS) == pytest.approx(prefill + waves)


@pytest.mark.parametrize("name", m.MODELS)
def test_the_models_have_as_many_weights_as_transformers_makes(name, tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(m.MODELS[name].config()))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
    assert sum(p.numel() for p in model.parameters()) == m.MODELS[name].weights


def test_lengths_have_the_mean_that_was_asked_for() -> None:
    drawn = m.draw_lengths(assume(mean=500, longest=10**6), 20000)
    assert drawn.mean() == pytest.approx(500, rel=0.03) and np.log(drawn).std() == pytest.approx(0.8, rel=0.03)
    assert m.draw_lengths(assume(spread=0.0), 5).tolist() == [20] * 5
    assert m.draw_lengths(assume(longest=7), 50).max() == 7


def test_links() -> None:
    a = assume(link_use=1.0, hop_us=1.0, network_hop_us=10.0)
    assert m.link_seconds(a, 8, 450e9, 0) == 1.0
    assert m.link_seconds(a, 16, 400e9, 0) == 1.0  # eight cards of a node
    around = [10 if gpu % 8 == 0 else 1 for gpu in range(1, 20)]  # three nodes, the last with four
    assert m.link_seconds(a, 20, 0, 1000) == pytest.approx(1000 * sum(around) / 1e6)
    assert m.link_seconds(a, 64, 0, 1000, tree=True) == pytest.approx(1000 * 2 * (7 * 1 + 3 * 10) / 1e6)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_equal_lengths_wait_for_nobody_and_products_are_divided(plugin) -> None:
    a = assume(spread=0.0, rows=64)
    one, four = (m.iteration(SMALL, a, plugin, gpus, 64) for gpus in (1, 4))
    assert one.waiting == pytest.approx(0, abs=1e-12) and four.waiting == pytest.approx(0, abs=1e-12)
    assert one.scoring == pytest.approx(4 * four.scoring) and one.learning == pytest.approx(4 * four.learning)
    assert one.sending == 0 and one.generation < 4 * four.generation  # each step reads all weights


def test_products_of_an_iteration() -> None:
    a = assume(spread=0.5)
    lengths = [floors.Lengths(12, int(n)) for n in m.draw_lengths(a, 64)]
    policy = floors.forward(SHAPE, lengths, 2, "vocabulary").flops
    value = floors.forward(SHAPE, lengths, 2, "value").flops
    it = m.iteration(SMALL, a, "ddp", 1, 64)
    assert it.scoring == pytest.approx((2 * policy + value) / (989e12 * 0.5))
    assert it.learning == pytest.approx(3 * (policy + value) / (989e12 * 0.4))


def test_the_slowest_is_waited_for() -> None:
    """Two GPUs and an optimizer step: what the pair takes is what the slower takes."""
    a = assume(steps=1, rows=64)
    alone = [m.generation_seconds(SHAPE, a, share) for share in m.draw_lengths(a, 64).reshape(2, -1)]
    it = m.iteration(SMALL, a, "ddp", 2, 64)
    assert it.generation == pytest.approx(sum(alone) / 2) and it.waiting > max(alone) - sum(alone) / 2


def test_what_is_not_hidden() -> None:
    """Without products nothing is; ZeRO sends half in bf16 of what DDP sends in float32, FSDP the weights again and again."""
    slow = assume(hop_us=0.0, network_hop_us=0.0, link_use=1.0)
    sending = {p: m.not_hidden(SMALL, slow, p, 8, 1, 0.0, True) for p in PLUGINS}
    one_way = SMALL.weights * 7 / 8 / 450e9
    assert sending["ddp"] == pytest.approx(4 * 2 * 4 * one_way)
    assert sending["zero1"] == sending["zero2"] == pytest.approx(4 * (2 + 2) * one_way)
    layers = SHAPE.layer_weights / SMALL.weights
    assert sending["fsdp"] == pytest.approx((2 + 4 * (2 + 2 + 2 * layers + 4)) * one_way)
    assert m.not_hidden(SMALL, slow, "ddp", 8, 1, 1e3, True) == 0


def test_responses_that_do_not_divide(monkeypatch, capsys) -> None:
    with pytest.raises(ValueError, match="64 responses don't divide among 32 GPUs x 4 optimizer steps"):
        m.iteration(SMALL, assume(), "ddp", 32, 64)
    monkeypatch.setattr(sys, "argv", ["scaling_model", "--responses", "10"])
    with pytest.raises(SystemExit):
        scaling_model.main()
    assert "10 responses don't divide" in capsys.readouterr().err


def test_the_table(monkeypatch, capsys) -> None:
    monkeypatch.setitem(m.MODELS, "small", SMALL)
    flags = "--model small --gpus 2 4 --plugins ddp fsdp --responses 64 --longest 64 --mean 20 --prompt 16 --markdown --weak"
    monkeypatch.setattr(sys, "argv", ["scaling_model", *flags.split()])
    scaling_model.main()
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == list(scaling_model.COLUMNS)
    assert [line[:2] for line in lines[2:]] == [["2", "ddp"], ["2", "fsdp"], ["4", "ddp"], ["4", "fsdp"]]
    assert [line[-1] for line in lines[2:4]] == ["100%", "100%"]
    of = {
        (plugin, gpus): scaling_model.memory_gb(SMALL, assume(), plugin, gpus, 64)
        for plugin in ("ddp", "fsdp")
        for gpus in (2, 4)
    }
    assert of["fsdp", 4] < of["fsdp", 2] < of["ddp", 2]
