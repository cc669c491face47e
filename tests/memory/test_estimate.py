"""The memory estimate: its counts against real models and real backward passes, and what settings change in it."""

import pytest
import torch

from rlvr.boost.frozen import Precision
from rlvr.config import from_dict
from rlvr.memory.estimate import Lengths, cache_columns, estimate, micro_batch_rows
from rlvr.memory.footprint import Footprint
from rlvr.memory.usage import readable
from rlvr.models.backbone import prepare
from rlvr.models.tiny import build_tiny_model, build_tiny_tokenizer
from rlvr.rollout.kv_cache import PreallocatedCache

MIB = 2**20


def made(**sections):
    return from_dict(
        {
            "reward": {"reward_functions": ["gsm8k_reward_fn"]},
            "rollout": {"experience_batch_size": 64, "max_length": 160, "max_new_tokens": 64},
            "train": {"train_batch_size": 32},
        }
        | sections
    )


@pytest.mark.parametrize("family", ["llama", "gpt2", "opt", "bloom", "qwen2-tied"])
def test_weights_and_saved_tensors_are_those_of_a_real_model(family: str, tmp_path) -> None:
    from tiny_models import tiny_model

    real = prepare(tiny_model(family), grad_checkpoint=False)
    real.save_pretrained(tmp_path)
    footprint = Footprint(str(tmp_path), Precision())
    assert footprint.parameters == sum(p.numel() for p in real.parameters())
    assert footprint.backbone_parameters == sum(p.numel() for p in real.base_model.parameters())
    weights = {p.untyped_storage().data_ptr() for p in real.parameters()}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        states = real.base_model(input_ids=torch.zeros(3, 20, dtype=torch.long), use_cache=False).last_hidden_state
    want = sum(storage.nbytes() for storage in saved.values())
    assert states.shape == (3, 20, footprint.hidden)
    assert footprint.saved_bytes(3, 20) == pytest.approx(want, rel=0.02)


def test_blocks_of_attention_are_counted_as_one_after_the_other(process, monkeypatch) -> None:
    """In bfloat16 on a CPU; counted through all of them, a large batch would take minutes."""
    from contextlib import nullcontext

    from rlvr.memory import footprint
    from rlvr.models import attention

    attention.install()
    monkeypatch.setattr(attention, "BLOCK_PAIRS", 40 * 40)
    counted: list[object] = []
    parts = attention._parts

    def count(*given):
        found = list(parts(*given))
        counted.append([None] * len(found))  # not the parts, which hold tensors
        return found

    for with_all in (False, True):
        if with_all:
            monkeypatch.setattr(footprint, "_one_block", nullcontext)
            monkeypatch.setattr(attention, "_parts", count)
        measured = Footprint("tiny", Precision(autocast=torch.bfloat16))
        counted.append((measured.saved_bytes(16, 40), measured.inference_bytes(16, 40)))
    of_one, of_all = [entry for entry in counted if isinstance(entry, tuple)]
    assert of_one == of_all
    assert max(len(entry) for entry in counted if isinstance(entry, list)) > 8


def test_cache_of_a_token_and_its_growth(process) -> None:
    footprint = Footprint("tiny", Precision())
    assert footprint.cache_elements == 2 * 3 * 64
    assert footprint.parameters == sum(p.numel() for p in build_tiny_model(build_tiny_tokenizer()).parameters())
    cache, prompt, response = PreallocatedCache(), 40, 600
    keys = torch.zeros(1, 1, prompt, 1)
    cache.update(keys, keys, 0)
    cache.expand(torch.zeros(1, dtype=torch.long), prompt + 256)
    for _ in range(response):
        cache.update(keys[:, :, :1], keys[:, :, :1], 0)
    assert cache_columns(Lengths(prompt, response)) == cache._buffers[0][0].size(2)


def test_roles_by_plugin_and_algorithm() -> None:
    ddp = {role.name: role for role in estimate(made(), 1, "fp32", False).roles}
    count = ddp["actor"].count
    assert list(ddp) == ["actor", "critic", "reference"]
    assert (ddp["actor"].parameters, ddp["actor"].optimizer) == (4 * count, 8 * count)
    assert ddp["reference"].total == 4 * count
    two = estimate(made(), 2, "fp32", False).roles[0]
    assert (ddp["actor"].gradients, two.gradients) == (4 * count, 8 * count)  # several exchange a second copy
    grouped = made(algo={"estimator": "grpo", "kl_coef": 0.0}, rollout={"num_generations": 4})
    assert [role.name for role in estimate(grouped, 1, "fp32", False).roles] == ["actor"]
    for plugin in ("zero1", "zero2"):
        zero = estimate(made(parallel={"plugin": plugin}), 4, "bf16", False).roles[0]
        assert zero.parameters == 2 * count and zero.optimizer == 12 * (count // 4)
    offloaded = estimate(made(parallel={"plugin": "zero2_cpu"}), 4, "bf16", False).roles[0]
    assert offloaded.optimizer == 0
    fsdp = estimate(made(parallel={"plugin": "fsdp"}), 4, "bf16", False)
    assert fsdp.roles[0].parameters == count and fsdp.roles[0].optimizer == 2 * count
    assert fsdp.phases[0].passing["whole weights"] == 2 * count
    gemini = estimate(made(parallel={"plugin": "gemini"}), 4, "bf16", False)
    assert gemini.roles[0].parameters == 2 * count // 4 and gemini.roles[0].optimizer == 12 * (count // 4)
    assert "whole weights" not in estimate(made(), 1, "fp32", False).phases[0].passing


def test_phases_follow_the_settings() -> None:
    def phases(world_size: int = 1, on_gpu: bool = False, precision: str = "fp32", **sections):
        return {p.name: p for p in estimate(made(**sections), world_size, precision, on_gpu).phases}

    plain = phases()
    assert list(plain) == ["rollout", "scoring", "learning (actor)", "learning (critic)"]
    learning = "learning (actor)"
    half = phases(2)[learning].passing["activations"]
    assert half == pytest.approx(plain[learning].passing["activations"] / 2, rel=0.05)
    tokens = {"train_batch_size": 32, "micro_batch_tokens": 320}
    assert phases(train=tokens)[learning].passing["activations"] < plain[learning].passing["activations"] / 10
    # 320 tokens may be two whole rows, or the responses of many that begin alike.
    ample = {"train_batch_size": 32, "micro_batch_tokens": 10**6}
    few, some, all_rows = (
        phases(train=t)[learning].passing["logits"] for t in ({"train_batch_size": 2}, tokens, ample)
    )
    assert few < some < all_rows and some / few == pytest.approx(320 / (2 * made().rollout.max_new_tokens), rel=0.01)
    assert phases(model={"grad_checkpoint": True})[learning].peak < 0.6 * plain[learning].peak
    assert phases(precision="bf16")[learning].passing["activations"] < plain[learning].passing["activations"]
    longer = phases(rollout={"experience_batch_size": 64, "max_length": 400, "max_new_tokens": 64})
    assert longer["rollout"].passing["KV cache"] > 2 * plain["rollout"].passing["KV cache"]
    reference = estimate(made(), 1, "fp32", False).roles[-1].total
    assert plain[learning].held - phases(on_gpu=True)[learning].held == reference
    assert estimate(made(), 1, "fp32", False).peak == max(p.peak for p in plain.values())


def test_rows_of_a_micro_batch() -> None:
    assert micro_batch_rows(made(), 1, 160) == 32 and micro_batch_rows(made(), 4, 160) == 8
    config = made(train={"train_batch_size": 32, "micro_batch_tokens": 320})
    assert micro_batch_rows(config, 1, 160) == 2 and micro_batch_rows(config, 1, 1000) == 1


def test_readable() -> None:
    assert [readable(n) for n in (10, 2048, 5 * MIB, 3 * 2**29)] == ["10 B", "2 KiB", "5 MiB", "1.5 GiB"]


def test_adapters_and_a_shared_trunk_hold_less(tmp_path) -> None:
    """LoRA: one base model for three roles, and only adapters have gradients and moments."""
    path = tmp_path / "lora.json"
    path.write_text('{"r": 4, "target_modules": ["q_proj", "v_proj"]}')
    plain = {role.name: role for role in estimate(made(), 1, "fp32", False).roles}
    lora = {role.name: role for role in estimate(made(model={"lora_config": str(path)}), 1, "fp32", False).roles}
    adapters = 3 * 2 * 4 * (64 + 64)  # layers, targets, rank, in and out
    assert lora["actor"].count == plain["actor"].count + adapters
    assert lora["actor"].optimizer == 8 * adapters and lora["actor"].gradients == 4 * adapters
    assert lora["critic"].count == adapters + 64 + 1 and "reference" not in lora
    in_4bit = made(model={"lora_config": str(path), "load_in_4bit": True})
    actor, critic = estimate(in_4bit, 1, "fp32", False).roles
    assert actor.packed + actor.count == lora["actor"].count and critic == lora["critic"]
    whole, packed = 4 * actor.packed, actor.parameters - 4 * actor.count
    assert whole / 8 < packed < whole / 6  # with scales, and a table for each of these small layers
    shared = {role.name: role for role in estimate(made(model={"share_trunk": True}), 1, "fp32", False).roles}
    assert set(shared) == {"actor", "reference"} and shared["actor"].count == plain["actor"].count + 65
