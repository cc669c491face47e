"""LoRA in PPO: what learns, what does not, what is saved, and how a run goes on."""

import json
from pathlib import Path

import peft
import pytest
import torch
from peft import PeftModel
from tiny_models import tiny_model
from trainer_harness import StopAfter, loader, make_trainer, prompts, weights
from transformers import AutoModelForCausalLM

from rlvr.boost.frozen import AdapterOff
from rlvr.checkpoint import storage as checkpoint
from rlvr.errors import UserError
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.models.lora import WEIGHTS
from rlvr.models.lora_config import LoraSettings
from rlvr.rollout.engine import Sampling
from rlvr.rollout.registry import make_engine
from rlvr.trainer.base import Interrupted

pytestmark = pytest.mark.usefixtures("process")
SETTINGS = LoraSettings(r=4, lora_alpha=16, target_modules="all-linear")
PLAN = (3, 2, 1)  # episodes, collect steps, passes: 4 optimizer steps of 16 in each
PLUGINS = [("ddp", "fp32"), ("zero1", "fp32"), ("zero2", "fp32"), ("zero2", "bf16")]
BATCH = collate([torch.tensor([5, 6, 7]), torch.tensor([8])], [torch.tensor([9, 10]), torch.tensor([11, 12, 1])])


def lora_trainer(folder: Path | None = None, **changes):
    return make_trainer(folder, lora=SETTINGS, **changes)


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def base_weights(trainer) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in trainer.actor.unwrapped.named_parameters() if not p.requires_grad}


@pytest.mark.parametrize(("plugin", "precision"), PLUGINS)
def test_only_adapters_and_the_value_head_learn(plugin, precision, tmp_path) -> None:
    trainer = lora_trainer(tmp_path, plugin=plugin, precision=precision)
    base, before = base_weights(trainer), weights(trainer)
    trainer.fit(*PLAN, loader())
    assert base and all(torch.equal(base[n], p) for n, p in base_weights(trainer).items())
    assert not torch.equal(weights(trainer), before)
    for role in (trainer.actor, trainer.critic):
        held = sum(p.numel() for group in role.optimizer.param_groups for p in group["params"])
        learned = sum(p.numel() for p in role.unwrapped.parameters() if p.requires_grad)
        assert learned == held < 0.6 * sum(p.numel() for p in role.unwrapped.parameters())
    shared = {id(p) for p in trainer.actor.unwrapped.parameters()} & {
        id(p) for p in trainer.critic.unwrapped.parameters()
    }
    assert len(shared) == len(base) - 1  # all but the head's matrix


@pytest.mark.parametrize(("plugin", "precision"), PLUGINS)
def test_the_reference_is_the_base_model_without_a_copy(plugin, precision, tmp_path) -> None:
    trainer = lora_trainer(tmp_path, plugin=plugin, precision=precision)
    reference = trainer.maker.reference
    assert isinstance(reference, AdapterOff) and reference.actor is trainer.actor.unwrapped
    plain = tiny_model().to(next(trainer.actor.unwrapped.model.parameters()).dtype)
    want = trainer.actor.freeze(Actor(plain)).forward(BATCH).logprobs
    assert torch.equal(reference.forward(BATCH).logprobs, want)
    trainer.fit(*PLAN, loader())
    assert torch.equal(reference.forward(BATCH).logprobs, want)
    assert not torch.allclose(trainer.actor.forward(BATCH).logprobs, want, atol=1e-2)


def test_the_divergence_starts_at_exactly_0_and_the_reward_rises(tmp_path) -> None:
    targets = ["q_proj", "v_proj", "up_proj", "down_proj", "embed_tokens", "lm_head"]  # the random head is of no use
    lora = LoraSettings(r=8, lora_alpha=16, target_modules=targets)
    make_trainer(tmp_path, lora=lora, lr=2e-2, kl_coef=0.001).fit(12, 2, 1, loader())
    metrics = rows(tmp_path)
    assert metrics[0]["objective/kl"] == 0 and metrics[0]["val/ratio"] == pytest.approx(1, abs=0.05)
    assert all(row["objective/kl"] != 0 for row in metrics[1:])
    assert metrics[-1]["objective/scores"] > metrics[0]["objective/scores"] + 0.2


@pytest.mark.parametrize(("plugin", "precision"), PLUGINS)
def test_a30_a_stopped_run_goes_on_as_if_nothing_had_happened(plugin, precision, tmp_path) -> None:
    options = {"plugin": plugin, "precision": precision}
    whole = lora_trainer(**options)
    whole.fit(*PLAN, loader())
    with pytest.raises(Interrupted) as interrupted:
        lora_trainer(tmp_path, callbacks=[StopAfter(11)], **options).fit(*PLAN, loader())
    again = lora_trainer(tmp_path, **options)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit(*PLAN, loader())
    assert torch.equal(weights(again), weights(whole))


def test_what_is_saved(tmp_path) -> None:
    trainer = lora_trainer(tmp_path)
    trainer.fit(*PLAN, loader())
    want = trainer.actor.forward(BATCH).logprobs
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "actor" / "modeling").eval()
    torch.testing.assert_close(Actor(merged)(BATCH).logprobs, want, atol=2e-5, rtol=1e-4)
    adapter = PeftModel.from_pretrained(tiny_model(), tmp_path / "actor" / "adapter").eval()
    assert torch.equal(Actor(adapter.get_base_model())(BATCH).logprobs, want)
    last = checkpoint.list_checkpoints(tmp_path)[-1]
    files = {str(p.relative_to(last)) for p in last.rglob("*") if p.is_file()}
    assert f"actor/adapter/{WEIGHTS}" in files and "critic/adapter/value_head.safetensors" in files
    assert not any("modeling" in name for name in files)


def test_adapters_alone_on_request(tmp_path) -> None:
    lora_trainer(tmp_path, lora_merge=False).fit(1, 1, 1, loader())
    assert sorted(p.name for p in (tmp_path / "actor").iterdir()) == ["adapter", "manifest.json"]
    assert (tmp_path / "critic" / "adapter" / WEIGHTS).is_file()


def test_a_checkpoint_of_another_base_is_refused(tmp_path) -> None:
    trainer = lora_trainer(tmp_path)
    trainer.fit(1, 1, 1, loader())
    again = lora_trainer(tmp_path)
    again.actor.unwrapped.model.lora_base = type(again.actor.unwrapped.model.lora_base)("other", "0")
    with pytest.raises(UserError, match="trained on another base model"):
        again.load_checkpoint(checkpoint.list_checkpoints(tmp_path)[-1])


@pytest.mark.parametrize("name", ["hf", "generate", "paged"])
def test_engines_generate_with_the_adapter_on(name) -> None:
    """Greedy responses are those of the merged model, and not those of the base."""
    from rlvr.models.lora import merged_copy

    trainer = lora_trainer(lr=3e-2)
    trainer.fit(6, 2, 1, loader())
    model = trainer.actor.unwrapped.model
    sampling = Sampling(max_new_tokens=8, temperature=0.0, stop_ids=(1,))
    greedy = [
        [
            r.response_ids.tolist()
            for batch in make_engine(name, trainer.tokenizer).stream(m, prompts(8), sampling, (0,))
            for r in batch
        ]
        for m in (model, merged_copy(model), tiny_model())
    ]
    assert greedy[0] == greedy[1] != greedy[2]


def test_vllm_gets_merged_weights() -> None:
    from rlvr.models.lora import merged_copy
    from rlvr.rollout.vllm import VLLMEngine

    trainer = lora_trainer()
    trainer.fit(1, 1, 1, loader())
    received = {}

    class FakeVLLM:
        def collective_rpc(self, method, kwargs) -> None:
            received.update(kwargs["weights_iterator"])

        def reset_prefix_cache(self) -> None: ...

    engine = VLLMEngine(trainer.tokenizer)
    engine._llm = FakeVLLM()
    engine._give_weights(trainer.actor.unwrapped.model)
    want = dict(merged_copy(trainer.actor.unwrapped.model).named_parameters())
    assert received.keys() == want.keys() == dict(tiny_model().named_parameters()).keys()
    assert all(torch.equal(received[name], want[name]) for name in want)


def test_a_model_that_peft_wrapped_is_taken() -> None:
    wrapped = peft.get_peft_model(tiny_model(), peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    from rlvr.trainer.roles import as_actor

    actor = as_actor(wrapped)
    assert actor.has_adapter and actor._plain_head and actor.model is wrapped.get_base_model()


def test_peft_models_without_lora_are_refused() -> None:
    from rlvr.trainer.roles import as_actor

    other = peft.get_peft_model(tiny_model(), peft.IA3Config(target_modules=["k_proj"], feedforward_modules=[]))
    with pytest.raises(UserError, match="IA3 adapters named default"):
        as_actor(other)


def test_a_divergence_without_adapter_and_initial_model_is_refused() -> None:
    with pytest.raises(UserError, match="needs initial_model"):
        make_trainer(initial_model=None)
