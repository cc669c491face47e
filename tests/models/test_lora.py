"""LoRA beside peft and transformers themselves, and beside plain sums with full logits."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import peft
import pytest
import torch
from peft import PeftModel
from tiny_models import FAMILIES, VOCAB, tiny_model
from transformers import AutoModelForCausalLM

from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.backbone import prepare
from rlvr.models.batch import SequenceBatch, collate
from rlvr.models.critic import Critic
from rlvr.models.lora import (
    WEIGHTS,
    adapter_off,
    adapter_settings,
    apply_lora,
    base_of,
    continue_adapter,
    copy_sharing,
    has_adapter,
    load_adapter,
    merged_copy,
    merged_parameters,
    save_adapter,
    save_model,
)
from rlvr.models.lora_config import LoraSettings, is_adapter, read_lora_config, refuse_dropout

ALL = LoraSettings(r=4, lora_alpha=8, target_modules="all-linear")
KINDS = {
    "plain": ALL,
    "rslora": replace(ALL, use_rslora=True),
    "dora": replace(ALL, use_dora=True),
    "gaussian": replace(ALL, init_lora_weights="gaussian"),
    "head": replace(ALL, target_modules=["q_proj", "lm_head"]),
    "embeddings": replace(ALL, target_modules=["embed_tokens", "v_proj"]),
    "saved whole": replace(ALL, target_modules=["q_proj"], modules_to_save=["lm_head", "norm"]),
    "one layer": replace(ALL, target_modules=["q_proj"], layers_to_transform=[1]),
    "expression": replace(ALL, target_modules=r"model\.layers\.\d+\.mlp\..*_proj"),
    "ranks": replace(
        ALL, target_modules=["q_proj", "v_proj"], rank_pattern={"v_proj": 2}, alpha_pattern={"v_proj": 16}
    ),
}


def batch(seed: int = 0, count: int = 4) -> SequenceBatch:
    generator = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> list[torch.Tensor]:
        sizes = torch.randint(low, high, (count,), generator=generator).tolist()
        return [torch.randint(2, VOCAB, (n,), generator=generator) for n in sizes]

    return collate(ids(1, 6), ids(1, 9))


def shake(model: torch.nn.Module, seed: int = 0) -> None:
    """Give what learns other values: at the start an adapter does nothing."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.5 * torch.randn(parameter.shape, generator=generator)


def adapted(settings: LoraSettings = ALL, family: str = "llama", shaken: bool = True, **arguments):
    model = apply_lora(tiny_model(family), settings, **arguments)
    if shaken:
        shake(model)
    return model


def logprobs(model, padded: bool = False) -> torch.Tensor:
    actor = Actor(model)
    if padded:
        actor.keep_padding()
    return actor(batch()).logprobs


def oracle(model, rows: SequenceBatch) -> torch.Tensor:
    """[B, R] from the model's own logits over everything."""
    out = torch.zeros(rows.response_mask.shape)
    picked = []
    for row in range(len(rows.input_ids)):
        length = int(rows.attention_mask[row].sum())
        ids = rows.input_ids[row, :length]
        logits = model(ids[None]).logits[0].float().log_softmax(-1)
        picked.append([logits[i - 1, ids[i]] for i in rows.response_index[row][rows.response_mask[row]].tolist()])
    values = torch.stack([value for row in picked for value in row])
    return out.masked_scatter(rows.response_mask, values)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_fresh_adapter_changes_nothing_at_all(family) -> None:
    assert torch.equal(logprobs(adapted(family=family, shaken=False)), logprobs(tiny_model(family)))


@pytest.mark.parametrize("autocast", [False, True])
def test_an_adapter_adds_what_peft_adds_and_makes_no_tensor_of_its_own_size(autocast) -> None:
    from peft.tuners.lora.layer import Linear
    from torch.utils._python_dispatch import TorchDispatchMode

    class Made(TorchDispatchMode):
        """Results of the size of the layer's."""

        def __init__(self):
            super().__init__()
            self.tensors = []  # held, so that no other takes the place of one

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.numel() == x.size(0) * x.size(1) * layer.out_features:
                self.tensors.append(out)
            return out

    layer = prepare(adapted(), grad_checkpoint=False).model.layers[0].mlp.up_proj
    assert type(layer) is Linear
    x, found = torch.randn(2, 5, layer.in_features, requires_grad=True), []
    learned = [x, *(p for p in layer.parameters() if p.requires_grad)]
    for forward in (layer.forward, partial(Linear.forward, layer)):
        with torch.autocast("cpu", torch.bfloat16, autocast), Made() as made:
            out = forward(x)
        storages = {tensor.untyped_storage()._cdata for tensor in made.tensors}
        found.append([out, *torch.autograd.grad(out.float().square().sum(), learned), len(storages)])
    *ours, made_here = found[0]
    *theirs, made_there = found[1]
    assert made_here == 1 < made_there
    for mine, other in zip(ours, theirs, strict=True):
        bound = 1e-2 if autocast else 1e-6
        assert (mine - other).norm() <= bound * other.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_the_logprobs_are_those_of_the_model_s_own_logits(kind) -> None:
    model = adapted(KINDS[kind])
    torch.testing.assert_close(logprobs(model), oracle(model, batch()), atol=2e-5, rtol=1e-4)
    assert not torch.allclose(logprobs(model), logprobs(tiny_model()), atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_adapter_off_it_is_the_base_model_bit_for_bit(kind) -> None:
    model = adapted(KINDS[kind])
    learns = [p.requires_grad for p in model.parameters()]
    on = logprobs(model)
    with torch.no_grad(), adapter_off(model):
        # With padding both, since what adapts the head is not run without, whose attention rounds otherwise.
        assert torch.equal(logprobs(model, padded=True), logprobs(tiny_model(), padded=True))
    assert torch.equal(logprobs(model), on)
    assert [p.requires_grad for p in model.parameters()] == learns


def test_what_learns_is_the_adapter_and_nothing_else() -> None:
    model = adapted(KINDS["saved whole"])
    learns = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learns and all("lora_" in name or "modules_to_save" in name for name in learns)
    assert {"lm_head.modules_to_save.default.weight", "model.norm.modules_to_save.default.weight"} < learns


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen2-tied"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_of_the_adapter_are_those_of_full_logits(family, checkpointing) -> None:
    gradients = []
    for whole in (False, True):
        model = prepare(adapted(family=family), checkpointing and not whole)
        actor = Actor(model, chunk_tokens=3)
        rows = batch(1)
        weights = torch.linspace(-1, 1, rows.response_mask.numel()).view(rows.response_mask.shape)
        out = oracle(model, rows) if whole else actor(rows).logprobs
        (out * weights).sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        assert whole or actor._plain_head
    assert gradients[0].keys() == gradients[1].keys() != set()
    for name in gradients[0]:
        assert "lora_" in name
        torch.testing.assert_close(gradients[0][name], gradients[1][name], atol=2e-5, rtol=1e-3)


def test_a36_no_tensor_over_all_positions_and_words_is_kept() -> None:
    actor = Actor(adapted(), chunk_tokens=4)
    parameters = {p.data_ptr() for p in actor.parameters()}
    largest = 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal largest
        if tensor.dim() >= 2 and tensor.shape[-1] == VOCAB and tensor.data_ptr() not in parameters:
            largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        actor(batch(4, count=16)).logprobs.sum().backward()
    assert largest <= 4 * VOCAB


@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_model_is_a_plain_one_that_says_the_same(kind, tmp_path) -> None:
    model = adapted(KINDS[kind])
    before = {name: t.clone() for name, t in model.state_dict().items()}
    merged = merged_copy(model)
    assert not has_adapter(merged) and merged.state_dict().keys() == tiny_model().state_dict().keys()
    torch.testing.assert_close(logprobs(merged), logprobs(model), atol=2e-5, rtol=1e-4)
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())
    parameters = dict(merged_parameters(model))
    assert all(torch.equal(parameters[name], p) for name, p in merged.named_parameters())
    save_model(model, tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    torch.testing.assert_close(logprobs(again.eval()), logprobs(merged), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_merges(family, tmp_path) -> None:
    model = adapted(family=family)
    save_model(model, tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    torch.testing.assert_close(logprobs(again), logprobs(model), atol=2e-5, rtol=1e-4)
    assert type(again) is type(model)


def test_merging_in_float32_keeps_what_bf16_would_round_away(tmp_path) -> None:
    model = adapted(shaken=False).to(torch.bfloat16)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p += 1e-4
    save_model(model, tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    base = tiny_model().to(torch.bfloat16).float()
    assert again.dtype == torch.float32
    changed = again.model.layers[0].self_attn.q_proj.weight - base.model.layers[0].self_attn.q_proj.weight
    assert (changed != 0).all() and changed.abs().max() < 1e-3
    assert next(model.parameters()).dtype == torch.bfloat16


def test_the_merged_model_shares_what_has_no_adapter() -> None:
    model = adapted(LoraSettings(target_modules=["q_proj"]))
    assert merged_copy(model).lm_head.weight is model.lm_head.weight


@pytest.mark.parametrize("kind", KINDS)
def test_peft_itself_reads_the_adapter(kind, tmp_path) -> None:
    model = adapted(KINDS[kind])
    save_adapter(model, tmp_path)
    theirs = PeftModel.from_pretrained(tiny_model(), tmp_path)
    rows = batch()
    assert torch.equal(theirs(rows.input_ids).logits, model(rows.input_ids).logits)


def test_an_adapter_that_peft_wrote_is_read(tmp_path) -> None:
    theirs = peft.get_peft_model(
        tiny_model(), peft.LoraConfig(r=3, target_modules=["q_proj", "down_proj"], lora_dropout=0.1)
    )
    shake(theirs)
    theirs.save_pretrained(tmp_path)
    model = tiny_model()
    assert is_adapter(tmp_path)
    continue_adapter(model, tmp_path)
    expected = logprobs(theirs.eval().get_base_model())
    assert torch.equal(logprobs(model), expected)
    assert not torch.allclose(expected, logprobs(tiny_model()), atol=1e-3)
    assert adapter_settings(tmp_path).lora_dropout == 0


def test_a_continued_adapter_is_measured_from_where_it_starts(tmp_path) -> None:
    save_adapter(adapted(KINDS["saved whole"]), tmp_path)
    model = continue_adapter(tiny_model(), tmp_path)
    start = logprobs(model)
    assert not any("start" in name for name, p in model.named_parameters() if p.requires_grad)
    shake(model, 1)
    assert not torch.allclose(logprobs(model), start, atol=1e-2)
    with torch.no_grad(), adapter_off(model):
        assert torch.equal(logprobs(model), start)
    torch.testing.assert_close(logprobs(merged_copy(model)), logprobs(model), atol=2e-5, rtol=1e-4)
    learned = logprobs(model)
    save_adapter(model, tmp_path / "next")  # the adapter that learned, and no trace of the other
    assert torch.equal(logprobs(continue_adapter(tiny_model(), tmp_path / "next")), learned)


def test_round_trip_of_a_saved_adapter(tmp_path) -> None:
    model, other = adapted(), adapted(seed=5)
    assert not torch.equal(logprobs(model), logprobs(other))
    save_adapter(model, tmp_path)
    load_adapter(other, tmp_path)
    assert torch.equal(logprobs(model), logprobs(other))


def test_first_weights_come_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = adapted(shaken=False, seed=3).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again, other = adapted(shaken=False, seed=3).state_dict(), adapted(shaken=False, seed=4).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "head"] + ["head"])
def test_actor_and_critic_share_the_base_weights(kind, tmp_path) -> None:
    base = tiny_model()
    own = {id(p) for p in base.parameters()}
    critic = Critic(apply_lora(copy_sharing(base.base_model), KINDS[kind]))
    actor = Actor(apply_lora(base, KINDS[kind]))
    of_actor, of_critic = ({id(p) for p in role.parameters()} for role in (actor, critic))
    shared = of_actor & of_critic
    assert len(shared) == len(own) - 1  # all but the head's matrix
    assert shared <= own and not any(p.requires_grad for p in actor.parameters() if id(p) in shared)
    fresh = critic(batch()).values
    shake(actor)
    assert torch.equal(critic(batch()).values, fresh)
    shake(critic)
    critic.save_adapter(tmp_path)
    again = Critic(apply_lora(tiny_model().base_model, KINDS[kind]), seed=9)
    again.load_adapter(tmp_path)
    assert torch.equal(again(batch()).values, critic(batch()).values)
    critic.save_pretrained(tmp_path / "whole")
    whole = Critic.from_pretrained(tmp_path / "whole")
    torch.testing.assert_close(whole(batch()).values, critic(batch()).values, atol=2e-5, rtol=1e-4)


# Mistakes


def write(path: Path, content) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_file_with_peft_s_keys(tmp_path) -> None:
    path = write(
        tmp_path / "lora.json", {"r": 4, "lora_alpha": 32, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    )
    assert read_lora_config(path) == LoraSettings(r=4, lora_alpha=32, target_modules=["q_proj"])


def test_a_file_of_colossalchat_s(tmp_path) -> None:
    content = {
        "r": 8,
        "embedding_lora_dropout": 0.0,
        "linear_lora_dropout": 0.0,
        "lora_alpha": 32,
        "lora_train_bias": "none",
        "lora_initialization_method": "kaiming_uniform",
        "target_modules": ["q_proj", "o_proj"],
    }
    want = LoraSettings(r=8, lora_alpha=32, target_modules=["q_proj", "o_proj"])
    assert read_lora_config(write(tmp_path / "lora.json", content)) == want


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{nope", ["not valid JSON", '"r": 16']),
        ("[1]", ["holds a list", '"r": 16']),
        ({"rank": 4}, ["unknown key 'rank'", "lora_alpha", "target_modules"]),
        ({"r": 0}, ["r 0", "at least 1", "leave --lora_config out"]),
        ({"r": "four"}, ["r 'four'", "integer"]),
        ({"lora_alpha": -1}, ["lora_alpha -1", "above 0"]),
        ({"lora_dropout": 1.5}, ["lora_dropout 1.5", "between 0 and 1"]),
        ({"target_modules": []}, ["target_modules []", "names no module"]),
        ({"bias": "all"}, ["bias 'all'", "share", '"none"']),
        ({"lora_train_bias": "lora_only"}, ["bias 'lora_only'", "share"]),
        ({"lora_initialization_method": "PiSSA"}, ["init_lora_weights 'PiSSA'", "kaiming_uniform"]),
        ({"init_lora_weights": False}, ["init_lora_weights False"]),
        ({"linear_lora_dropout": 0.1, "embedding_lora_dropout": 0.0}, ["embedding_lora_dropout 0.0 differs from 0.1"]),
        ({"use_qalora": True}, ["not supported: 'use_qalora'", "use_rslora"]),
        ({"peft_type": "IA3"}, ["peft_type 'IA3'", "only LoRA"]),
    ],
)
def test_mistakes_in_the_file(content, said, tmp_path) -> None:
    with pytest.raises(UserError) as error:
        read_lora_config(write(tmp_path / "lora.json", content))
    assert all(part in str(error.value) for part in ["lora.json", *said]), error.value


def test_a_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_lora_config(tmp_path / "lora.json")


def test_a17_dropout_is_refused_for_policies() -> None:
    with pytest.raises(UserError, match="lora_dropout 0.1.*different networks.*set it to 0"):
        refuse_dropout(LoraSettings(lora_dropout=0.1), "lora.json")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            LoraSettings(target_modules=["q_proj", "v_porj"]),
            "'v_porj' matches nothing.*down_proj, embed_tokens.*v_proj",
        ),
        (LoraSettings(target_modules="nothing.*"), "'nothing.*' matches nothing"),
        (LoraSettings(target_modules="q_proj("), "no regular expression"),
        (LoraSettings(target_modules=["self_attn"]), "'self_attn' matches nothing"),
        (
            LoraSettings(target_modules=["q_proj"], modules_to_save=["score"]),
            "modules_to_save: 'score' matches nothing",
        ),
        (LoraSettings(target_modules=["q_proj"], exclude_modules=["k"]), "exclude_modules: 'k' matches nothing"),
        (LoraSettings(target_modules=["q_proj"], layers_to_transform=[7]), "LoRA does not fit.*q_proj"),
    ],
)
def test_targets_that_match_nothing(settings, said) -> None:
    with pytest.raises(UserError, match=said):
        apply_lora(tiny_model(), settings)


def test_the_head_alone_is_no_target_in_a_critic() -> None:
    with pytest.raises(UserError, match="match nothing in LlamaModel.*q_proj"):
        apply_lora(tiny_model().base_model, LoraSettings(target_modules=["lm_head"]))


@pytest.mark.parametrize("key", ["target_modules", "modules_to_save"])
def test_tied_embeddings_are_refused(key) -> None:
    settings = replace(LoraSettings(target_modules=["q_proj"]), **{key: ["embed_tokens"]})
    with pytest.raises(UserError, match="one tied matrix"):
        apply_lora(tiny_model("qwen2-tied"), settings)


def test_an_adapter_of_another_base_is_refused(tmp_path) -> None:
    save_adapter(adapted(), tmp_path)
    other = apply_lora(tiny_model(seed=1), ALL)
    with pytest.raises(UserError, match="trained on another base model"):
        load_adapter(other, tmp_path)


def test_the_fingerprint_of_weights_that_float32_can_not_count() -> None:
    model = torch.nn.Module()
    model.config = None
    model.weight = torch.nn.Parameter(torch.zeros(1).expand(28_311_552))
    first = base_of(model).fingerprint
    model.weight = torch.nn.Parameter(torch.zeros(1).expand(28_311_553))
    assert base_of(model).fingerprint != first


def test_an_adapter_of_another_size_or_damaged_is_refused(tmp_path) -> None:
    save_adapter(adapted(), tmp_path)
    with pytest.raises(UserError, match="does not fit LlamaForCausalLM.*lora_A"):
        load_adapter(apply_lora(tiny_model(), replace(ALL, r=2)), tmp_path)
    (tmp_path / WEIGHTS).write_bytes(b"nonsense")
    with pytest.raises(UserError, match="can't be read"):
        load_adapter(apply_lora(tiny_model(), ALL), tmp_path)
