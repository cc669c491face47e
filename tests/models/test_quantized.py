"""Bases in 4 bits beside bitsandbytes' own layers, and beside plain layers with the weights that 4 bits hold."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from bitsandbytes import functional
from bitsandbytes import nn as bnb
from peft import PeftModel
from tiny_models import VOCAB, tiny_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from rlvr.boost.frozen import Precision
from rlvr.errors import UserError
from rlvr.memory.footprint import Footprint
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.batch import collate
from rlvr.models.critic import Critic
from rlvr.models.loading import load_causal_lm, load_sequence_classifier
from rlvr.models.lora import (
    adapter_off,
    apply_lora,
    continue_adapter,
    copy_sharing,
    load_adapter,
    merged_copy,
    merged_parameters,
    quantize_base,
    save_adapter,
)
from rlvr.models.lora_config import LoraSettings
from rlvr.models.quantized import Linear4bit, dequantize, quantize

ALL = LoraSettings(r=4, lora_alpha=8, target_modules="all-linear")
KINDS = {
    "all": ALL,
    "dora": replace(ALL, use_dora=True),
    "some": replace(ALL, target_modules=["q_proj", "lm_head"], modules_to_save=["norm"]),
    "one layer": replace(ALL, target_modules=["down_proj"], layers_to_transform=[1]),
}
IDS = torch.randint(2, VOCAB, (3, 9), generator=torch.Generator().manual_seed(0))
BATCH = collate([torch.tensor([5, 6, 7]), torch.tensor([8])], [torch.tensor([9, 10]), torch.tensor([11, 12, 1])])


def rounded(family: str = "llama") -> torch.nn.Module:
    """A plain model with the weights that 4 bits hold."""
    model = tiny_model(family)
    for layer in model.base_model.modules():
        if type(layer) is torch.nn.Linear:
            packed, state = functional.quantize_4bit(layer.weight.data, quant_type="nf4", compress_statistics=True)
            layer.weight.data = functional.dequantize_4bit(packed, state)
    return model


def adapted(model, settings: LoraSettings = ALL, shaken: bool = True):
    apply_lora(model, settings)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad and shaken:
                p += 0.5 * torch.randn(p.shape, generator=generator)
    return model


def in_4bit(settings: LoraSettings = ALL, family: str = "llama", shaken: bool = True):
    model = tiny_model(family)
    quantize_base(model)
    return adapted(model, settings, shaken)


def packed(model: torch.nn.Module) -> dict[str, Linear4bit]:
    """The layers in 4 bits, by name."""
    return {name: module for name, module in model.named_modules() if isinstance(module, Linear4bit)}


@pytest.mark.parametrize("family", ["llama", "opt", "bloom", "qwen2-tied"])
def test_the_decoder_s_linear_layers_are_rounded_and_nothing_else(family) -> None:
    model, want = tiny_model(family), rounded(family)
    plain = {name for name, m in tiny_model(family).base_model.named_modules() if isinstance(m, torch.nn.Linear)}
    quantize(model)
    assert packed(model.base_model).keys() == plain and torch.equal(model(IDS).logits, want(IDS).logits)
    assert not torch.allclose(model(IDS).logits, tiny_model(family)(IDS).logits, atol=1e-4)
    dequantize(model)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), want.parameters(), strict=True))


def test_transformers_and_bitsandbytes_compute_the_same(tmp_path) -> None:
    tiny_model().save_pretrained(tmp_path)
    settings = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    )
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, quantization_config=settings, dtype=torch.float32).eval()
    ours = tiny_model()
    quantize(ours)
    assert {n for n, m in theirs.named_modules() if isinstance(m, bnb.Linear4bit)} == packed(ours).keys()
    torch.testing.assert_close(ours(IDS).logits, theirs(IDS).logits, atol=1e-6, rtol=1e-6)
    with pytest.raises(UserError, match="loaded quantised: load it whole"):
        from rlvr.trainer.roles import as_actor

        as_actor(theirs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_learn_as_over_plain_layers(kind, checkpointing) -> None:
    results = []
    for model in (in_4bit(KINDS[kind]), adapted(rounded(), KINDS[kind])):
        actor = Actor(prepare(model, checkpointing))
        out = actor(BATCH).logprobs
        out.sum().backward()
        results.append((out, {name: p.grad for name, p in model.named_parameters() if p.requires_grad}))
    assert torch.equal(results[0][0], results[1][0]) and results[0][1].keys() == results[1][1].keys() != set()
    for name, gradient in results[0][1].items():
        torch.testing.assert_close(gradient, results[1][1][name], atol=1e-6, rtol=1e-5)


def test_in_bfloat16_as_autocast_computes_plain_layers() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        results = [Actor(model)(BATCH).logprobs for model in (in_4bit(), adapted(rounded()))]
    torch.testing.assert_close(*results, atol=2e-2, rtol=2e-2)


def test_no_whole_weight_is_kept_for_the_backward_pass() -> None:
    def kept(model) -> set[torch.Size]:
        shapes = set()
        learned = {p.data_ptr() for p in model.parameters() if p.requires_grad}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.data_ptr() not in learned:
                shapes.add(tensor.squeeze().shape)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            Actor(model)(BATCH)
        return shapes

    weights = {(32, 16), (16, 32)}  # of the gates, either way around
    assert kept(adapted(rounded())) & weights and not kept(in_4bit()) & weights


def test_one_base_in_memory_and_the_reference_is_it() -> None:
    base = tiny_model()
    quantize_base(base)
    trunk = copy_sharing(base.base_model)
    actor, critic = adapted(base), adapted(trunk)
    shared = [
        (mine, other)
        for mine, other in zip(packed(actor).values(), packed(critic).values(), strict=True)
        if all(a.data_ptr() == b.data_ptr() for a, b in zip(mine.buffers(), other.buffers(), strict=True))
    ]
    assert len(shared) == 2 * 7
    Critic(critic)(BATCH)
    with torch.no_grad(), adapter_off(actor):
        assert torch.equal(Actor(actor)(BATCH).logprobs, Actor(rounded())(BATCH).logprobs)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_merged_is_the_policy_that_was_trained(kind, tmp_path) -> None:
    model = in_4bit(KINDS[kind])
    want = Actor(model)(BATCH).logprobs
    merged = merged_copy(model)
    assert not packed(merged) and {p.dtype for p in merged.parameters()} == {torch.float32}
    merged.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert type(again) is type(model) and not hasattr(again.config, "quantization_config")
    torch.testing.assert_close(Actor(again)(BATCH).logprobs, want, atol=2e-5, rtol=1e-4)
    given, plain = dict(merged_parameters(model)), dict(merged.named_parameters())
    assert given.keys() == plain.keys() == dict(tiny_model().named_parameters()).keys()
    assert all(torch.equal(given[name], plain[name]) for name in plain)
    assert packed(model) and torch.equal(Actor(model)(BATCH).logprobs, want)


def test_an_adapter_goes_over_what_it_was_trained_over(tmp_path) -> None:
    tiny_model().save_pretrained(tmp_path / "base")
    base, folder = load_causal_lm(str(tmp_path / "base")), tmp_path / "adapter"
    quantize_base(base)
    save_adapter(adapted(base), folder)
    assert json.loads((folder / "base.json").read_text())["quantization"] == "nf4"
    # Read as a model, it is merged into the rounded base.
    torch.testing.assert_close(load_causal_lm(str(folder))(IDS).logits, base(IDS).logits, atol=1e-5, rtol=1e-5)
    again = tiny_model()
    quantize_base(again)
    again.lora_base = replace(again.lora_base, name="elsewhere")
    continue_adapter(again, folder)
    assert torch.equal(again(IDS).logits, base(IDS).logits)
    with pytest.raises(UserError, match="weights were in 4 bits.*: give --load_in_4bit"):
        load_adapter(adapted(tiny_model()), folder)
    save_adapter(adapted(tiny_model()), tmp_path / "whole")
    with pytest.raises(UserError, match="weights were whole.*: leave out --load_in_4bit"):
        load_adapter(in_4bit(), tmp_path / "whole")
    # peft's own way to use one: over the rounded model.
    theirs = PeftModel.from_pretrained(rounded(), folder)
    torch.testing.assert_close(theirs(IDS).logits, base(IDS).logits, atol=1e-6, rtol=1e-6)


def test_the_memory_estimate_counts_them(tmp_path, monkeypatch) -> None:
    """As the first thing that a process does with 4 bits, too: bitsandbytes' table of steps is then made, on the device of the time."""
    monkeypatch.setattr("bitsandbytes.functional.name2qmap", {})
    tiny_model().save_pretrained(tmp_path)
    footprint, model = Footprint(str(tmp_path), Precision(), lora=ALL, load_in_4bit=True), in_4bit()
    layers = packed(model).values()
    assert footprint.packed == sum(layer.count for layer in layers)
    assert footprint.packed_bytes == sum(buffer.nbytes for layer in layers for buffer in layer.buffers())
    assert footprint.parameters == sum(p.numel() for p in model.parameters())
    assert footprint.learned == sum(p.numel() for p in model.parameters() if p.requires_grad)
    whole = Footprint(str(tmp_path), Precision(), lora=ALL)
    assert footprint.saved_bytes(4, 20) == whole.saved_bytes(4, 20)
    assert footprint.unpacked_bytes == 16 * 32 * 4


def test_what_can_t_be_in_4_bits_is_refused() -> None:
    with pytest.raises(UserError, match="GPT2LMHeadModel has no linear layers"):
        quantize(tiny_model("gpt2"))
    with pytest.raises(UserError, match=r"would train model\.layers\.0\.self_attn\.q_proj whole"):
        in_4bit(replace(ALL, target_modules=["v_proj"], modules_to_save=["q_proj"]))


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq"])
def test_weights_that_are_stored_quantised_are_refused(method, tmp_path: Path) -> None:
    tiny_model().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": method, "bits": 4, "load_in_4bit": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for read in (load_causal_lm, load_sequence_classifier, lambda name: Footprint(name, Precision())):
        with pytest.raises(UserError, match=rf"stored quantised \({method}\).*--load_in_4bit"):
            read(str(tmp_path))


def test_an_old_bitsandbytes_is_named_and_its_talk_of_kernels_is_not_heard(monkeypatch) -> None:
    import bitsandbytes

    assert not logging.getLogger("bitsandbytes.backends.cpu.ops").isEnabledFor(logging.WARNING)
    monkeypatch.setattr(bitsandbytes, "__version__", "0.41.0")
    with pytest.raises(UserError, match=r"0\.46 or newer, and here is 0\.41\.0"):
        quantize(tiny_model())
