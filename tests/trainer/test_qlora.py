"""PPO, fine-tuning and reward models over a base in 4 bits: under every plugin, by every engine, and from the command line."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from saved_models import save_micro_model
from tiny_models import tiny_model
from trainer_harness import StopAfter, loader, make_trainer, prompts, weights
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from rlvr.checkpoint.storage import list_checkpoints
from rlvr.cli.main import main
from rlvr.models.actor import Actor
from rlvr.models.batch import collate
from rlvr.models.loading import load_causal_lm
from rlvr.models.lora import WEIGHTS, merged_copy
from rlvr.models.lora_config import LoraSettings
from rlvr.models.quantized import dequantize, layers_in_4bit, quantize
from rlvr.models.reward_model import RewardModel
from rlvr.rollout.engine import Sampling
from rlvr.rollout.registry import make_engine
from rlvr.trainer.base import Interrupted

pytestmark = pytest.mark.usefixtures("process")
SETTINGS = LoraSettings(r=4, lora_alpha=16, target_modules=["q_proj", "v_proj", "up_proj", "down_proj"])
PLAN = (2, 2, 1)  # episodes, collect steps, passes
BATCH = collate([torch.tensor([5, 6, 7]), torch.tensor([8])], [torch.tensor([9, 10]), torch.tensor([11, 12, 1])])


def qlora_trainer(folder: Path | None = None, **changes):
    return make_trainer(folder, lora=SETTINGS, in_4bit=True, **changes)


@pytest.mark.parametrize(("plugin", "precision"), [("ddp", "bf16"), ("zero1", "bf16"), ("fsdp", "fp32")])
def test_a_run_its_reference_its_result_and_its_resumption(plugin, precision, tmp_path) -> None:
    options = {"plugin": plugin, "precision": precision}
    whole = qlora_trainer(tmp_path / "whole", **options)
    packed = [layer.weight for layer in layers_in_4bit(whole.actor.unwrapped)]
    plain = tiny_model()
    quantize(plain)
    want = whole.actor.freeze(Actor(plain)).forward(BATCH).logprobs
    assert torch.equal(whole.maker.reference.forward(BATCH).logprobs, want)  # the base in 4 bits, bit for bit
    whole.fit(*PLAN, loader())
    metrics = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert metrics[0]["objective/kl"] == 0 != metrics[1]["objective/kl"]
    after = [layer.weight for layer in layers_in_4bit(whole.actor.unwrapped)]
    assert len(packed) == 2 * 7 and all(torch.equal(p, q) for p, q in zip(packed, after, strict=True))
    assert torch.equal(whole.maker.reference.forward(BATCH).logprobs, want)
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "whole" / "actor" / "modeling", dtype=torch.float32)
    loose = 2e-5 if precision == "fp32" else 3e-2
    now = whole.actor.forward(BATCH).logprobs
    torch.testing.assert_close(Actor(merged.eval())(BATCH).logprobs, now.detach(), atol=loose, rtol=loose)
    with pytest.raises(Interrupted) as interrupted:
        qlora_trainer(tmp_path / "again", callbacks=[StopAfter(6)], **options).fit(*PLAN, loader())
    again = qlora_trainer(tmp_path / "again", **options)
    again.load_checkpoint(interrupted.value.checkpoint)
    again.fit(*PLAN, loader())
    assert torch.equal(weights(again), weights(whole))


def test_engines_sample_from_the_policy_that_learns() -> None:
    """Greedy responses are those of the merged model, and not those of the whole weights."""
    trainer = qlora_trainer(lr=3e-2)
    trainer.fit(2, 2, 1, loader())
    model = trainer.actor.unwrapped.model
    sampling = Sampling(max_new_tokens=8, temperature=0.0, stop_ids=(1,))
    for name in ("hf", "generate", "paged"):
        greedy = [
            [
                r.response_ids.tolist()
                for batch in make_engine(name, trainer.tokenizer).stream(m, prompts(8), sampling, (0,))
                for r in batch
            ]
            for m in (model, merged_copy(model), tiny_model())
        ]
        assert greedy[0] == greedy[1] != greedy[2], name


def test_what_the_hf_engine_says_of_its_tokens_is_what_the_trainer_computes() -> None:
    """One row as well as many: nothing is multiplied by kernels of its own."""
    trainer = qlora_trainer()
    trainer.fit(1, 1, 1, loader())
    engine = make_engine("hf", trainer.tokenizer)
    for count in (1, 8):
        sampling = Sampling(max_new_tokens=8, stop_ids=(1,))
        found = [r for b in engine.stream(trainer.actor.unwrapped.model, prompts(count), sampling, (0,)) for r in b]
        batch = collate([r.prompt_ids for r in found], [r.response_ids for r in found])
        computed = trainer.actor.forward(batch).logprobs[batch.response_mask]
        torch.testing.assert_close(torch.cat([r.logprobs for r in found]), computed.detach(), atol=1e-5, rtol=1e-5)


@pytest.fixture
def files(tmp_path) -> tuple[str, str]:
    """A model and the settings of adapters."""
    path = tmp_path / "lora.json"
    path.write_text(json.dumps({"r": 4, "target_modules": "all-linear"}))
    return save_micro_model(tmp_path / "micro"), str(path)


def test_the_whole_command_and_its_resumption(files, tmp_path, capsys) -> None:
    (micro, lora), run = files, tmp_path / "run"
    sizes = "--num_episodes 2 --experience_batch_size 8 --train_batch_size 8 --num_collect_steps 1 --eval_samples 2 --max_new_tokens 8"
    model = ["--pretrain", micro, "--lora_config", lora, "--load_in_4bit"]
    flags = ["train", "--reward_functions", "gsm8k_reward_fn", *model, *sizes.split(), "--max_length", "192"]
    flags += ["--lr", "1e-3", "--save_interval", "1", "--save_path", str(run)]
    assert main(flags) == 0
    assert "areheldin4bits" in "".join(capsys.readouterr().out.split())
    whole = (run / "actor" / "adapter" / WEIGHTS).read_bytes()
    shutil.rmtree(list_checkpoints(run)[-1])
    assert main([*flags, "--resume"]) == 0
    assert (run / "actor" / "adapter" / WEIGHTS).read_bytes() == whole
    merged = load_causal_lm(str(run / "actor" / "modeling"))
    read = load_causal_lm(str(run / "actor" / "adapter"))
    torch.testing.assert_close(Actor(merged)(BATCH).logprobs, Actor(read)(BATCH).logprobs, atol=1e-5, rtol=1e-5)
    assert main([flag for flag in flags if flag != "--load_in_4bit"] + ["--resume"]) == 2
    assert "load_in_4bit" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["sft", "reward-model"])
def test_supervised_commands(kind, files, tmp_path) -> None:
    (micro, lora), run = files, tmp_path / "run"
    sizes = "--max_samples 16 --max_steps 2 --train_batch_size 4 --lr 1e-2 --max_length 128 --eval_samples 4".split()
    model = ["--pretrain", micro, "--lora_config", lora, "--load_in_4bit"]
    assert main([kind, *model, *sizes, "--save_path", str(run)]) == 0
    rounded = AutoModelForCausalLM.from_pretrained(micro)
    quantize(rounded)
    dequantize(rounded)
    if kind == "sft":
        models = [load_causal_lm(str(run / "actor" / part)) for part in ("modeling", "adapter")]
        results = [Actor(model)(BATCH).logprobs for model in (*models, rounded)]
        more = ["--pretrain", micro, "--checkpoint_path", str(run / "actor" / "adapter")]
        assert main([kind, *more, *sizes, "--save_path", str(tmp_path / "no")]) == 2
        assert main([kind, *more, "--load_in_4bit", *sizes, "--save_path", str(tmp_path / "more")]) == 0
    else:
        folder = run / "reward_model"
        plain = AutoModelForSequenceClassification.from_pretrained(folder / "modeling")
        plain.base_model.load_state_dict(rounded.base_model.state_dict())
        models = [RewardModel.from_pretrained(folder / part) for part in ("modeling", "adapter")]
        results = [model(BATCH) for model in (*models, RewardModel(plain))]
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(results[0], results[2], atol=1e-3)


def test_without_adapters_it_is_refused(files, tmp_path, capsys) -> None:
    for command in ("sft", "reward-model"):
        assert main([command, "--pretrain", files[0], "--load_in_4bit", "--save_path", str(tmp_path / "run")]) == 2
        assert "--load_in_4bit has no effect without LoRA" in " ".join(capsys.readouterr().err.split())
